"""UpdateFeatures: finalise other levels of features, for the whole cluster.

Version 0 says only whether a downgrade is allowed; version 1 says of which kind the change is (1 an upgrade,
2 a safe downgrade, 3 an unsafe one), and can be asked to validate only. From version 2 on there is one error
for the whole request, and no results by feature.
"""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int8, Int16, Int32, Message, String, Struct, field


class FeatureUpdateKey(Struct):
    feature: String
    max_version_level: Int16
    allow_downgrade: Bool = field(0, 0)
    upgrade_type: Int8 = field(1, default=1)


class UpdateFeaturesRequest(Message, key=57, versions=(0, 2), flexible=0):
    timeout_ms: Int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = field(1, default=False)


class UpdatableFeatureResult(Struct):
    feature: String = field(0, 1)
    error_code: Int16 = field(0, 1)
    error_message: String | None = field(0, 1)


class UpdateFeaturesResponse(Message, key=57, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[UpdatableFeatureResult] = field(0, 1)
