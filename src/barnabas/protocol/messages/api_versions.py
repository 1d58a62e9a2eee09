"""ApiVersions: what a broker can do. Its response always has a header of version 0."""

from __future__ import annotations

from barnabas.protocol.schema import Bool, Int16, Int32, Int64, Message, String, Struct, field


class ApiVersionsRequest(Message, key=18, versions=(0, 4), flexible=3):
    client_software_name: String = field(3)
    client_software_version: String = field(3)


class ApiVersion(Struct):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    name: String
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    name: String
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Message, key=18, versions=(0, 4), flexible=3):
    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field(1)
    supported_features: list[SupportedFeatureKey] = field(3, tag=0)
    finalized_features_epoch: Int64 = field(3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(3, tag=2)
    zk_migration_ready: Bool = field(3, tag=3, default=False)
