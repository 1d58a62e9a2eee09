"""The cluster itself: brokers, features, and the API versions of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.client.admin.engine import Engine, check, error_of, raise_first
from barnabas.core.network import Address
from barnabas.protocol.channel import NotSpoken
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

SOFTWARE_NAME = "barnabas"
_LEVELS_CHOSEN_BY_TYPE = 1  # the first version of UpdateFeatures that knows FeatureUpgrade


class Broker(NamedTuple):
    """A broker of the cluster."""

    node_id: int
    address: Address
    rack: str | None
    is_fenced: bool = False


class ClusterDescription(NamedTuple):
    """A cluster."""

    cluster_id: str
    controller_id: int
    brokers: list[Broker]


class LevelRange(NamedTuple):
    """The levels of a feature, from the first to the last."""

    first: int
    last: int


class Features(NamedTuple):
    """Features by name: the levels that the brokers support, and the finalized ones."""

    supported: dict[str, LevelRange]
    finalized: dict[str, LevelRange]
    finalized_epoch: int | None


class FeatureUpgrade(IntEnum):
    """The allowed direction of a feature update."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3  # metadata may be lost


class FeatureUpdate(NamedTuple):
    """The new level of a feature; 0 removes it."""

    level: int
    way: FeatureUpgrade = FeatureUpgrade.UPGRADE


class ClusterAdmin(Engine):
    """The part of an admin for the cluster as a whole."""

    async def describe_cluster(self, *, with_fenced: bool = False) -> ClusterDescription:
        """The cluster and its brokers; fenced brokers only on request."""
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, include_fenced_brokers=with_fenced
        )
        try:
            response = await self._ask(request, DescribeClusterResponse, is_safe=True)
        except NotSpoken:
            return await self._cluster_by_metadata()
        check(response.error_code, "cannot describe the cluster", response.error_message)
        brokers = [
            Broker(each.broker_id, Address(each.host, each.port), each.rack, each.is_fenced)
            for each in response.brokers
        ]
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)

    async def _cluster_by_metadata(self) -> ClusterDescription:
        """The same from a broker before 2.8."""
        response = await self._metadata([])
        brokers = [
            Broker(each.node_id, Address(each.host, each.port), each.rack) for each in response.brokers
        ]
        return ClusterDescription(response.cluster_id or "", response.controller_id, brokers)

    async def api_versions(self, node_id: int | None = None) -> dict[int, tuple[int, int]]:
        """The first and the last version of every API of a broker, by API key."""
        connection = await (
            self.cluster.any_connection() if node_id is None else self.cluster.connect(node_id)
        )
        return dict(connection.versions.ranges)

    async def describe_features(self, node_id: int | None = None) -> Features:
        """The features that a broker supports, and the finalized ones."""
        from barnabas import __version__

        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        response = await self._ask(request, ApiVersionsResponse, is_safe=True, node_id=node_id)
        check(response.error_code, "cannot describe features")
        epoch = response.finalized_features_epoch
        return Features(
            {
                each.name: LevelRange(each.min_version, each.max_version)
                for each in response.supported_features
            },
            {
                each.name: LevelRange(each.min_version_level, each.max_version_level)
                for each in response.finalized_features
            },
            None if epoch < 0 else epoch,
        )

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate | int], *, validate_only: bool = False
    ) -> None:
        """Change features to these levels."""
        wanted = {
            name: FeatureUpdate(update) if isinstance(update, int) else update
            for name, update in updates.items()
        }
        request = UpdateFeaturesRequest(
            timeout_ms=self._timeout_ms,
            feature_updates=[
                FeatureUpdateKey(
                    feature=name,
                    max_version_level=level,
                    upgrade_type=way,
                    allow_downgrade=way is not FeatureUpgrade.UPGRADE,
                )
                for name, (level, way) in wanted.items()
            ],
            validate_only=validate_only,
        )
        if validate_only:
            connection = await self.cluster.any_connection()
            if connection.versions.choose(UpdateFeaturesRequest) < _LEVELS_CHOSEN_BY_TYPE:
                raise NotSpoken("the broker is too old to only look at an update of features")
        response = await self._ask_controller(
            request, UpdateFeaturesResponse, lambda answer: [answer.error_code], is_safe=validate_only
        )
        raise_first(
            error_of(each.error_code, f"cannot update {each.feature}", each.error_message)
            for each in response.results
        )
        check(response.error_code, f"cannot update {', '.join(wanted)}", response.error_message)

    async def unregister_broker(self, node_id: int) -> None:
        """Remove a broker that will not come back."""
        response = await self._ask_controller(
            UnregisterBrokerRequest(broker_id=node_id),
            UnregisterBrokerResponse,
            lambda answer: [answer.error_code],
            is_safe=False,
        )
        check(response.error_code, f"cannot unregister broker {node_id}", response.error_message)
