"""Quotas are kept by whom they are for, in whatever order that is said, and go one by one."""

from __future__ import annotations

from barnabas.controller.decisions import Decision
from barnabas.controller.quotas import alter_quotas, describe_quotas
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import ClientQuotaRecord, QuotaEntity
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.controller.clusters import Cluster
from tests.support.images import image_of, to_records

Named = tuple[tuple[str, str | None], ...]
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
U: Named = (("user", "u"),)
U_AND_C: Named = (("user", "u"), ("client-id", "c"))


def ask(
    cluster: Cluster, *entries: tuple[Named, dict[str, float | None]], validate_only: bool = False
) -> Decision[AlterClientQuotasResponse]:
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in named],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
            )
            for named, ops in entries
        ],
        validate_only=validate_only,
    )
    return alter_quotas(cluster.image, request)


def described(image: ClusterImage) -> dict[Named, dict[str, float]]:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    entries = describe_quotas(image, request).entries
    assert entries is not None
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in entries
    }


def test_quotas_are_set_changed_and_removed_one_by_one() -> None:
    cluster = Cluster(1)
    cluster.carry_out(ask(cluster, (U, {PRODUCE: 10.0, CONSUME: 20.0})))
    cluster.carry_out(ask(cluster, (U, {PRODUCE: 30.0})))
    assert described(cluster.image) == {U: {PRODUCE: 30.0, CONSUME: 20.0}}
    assert ask(cluster, (U, {PRODUCE: 30.0})).records == []  # as it is
    cluster.carry_out(ask(cluster, (U, {PRODUCE: None, CONSUME: None})))
    assert described(cluster.image) == {}
    assert cluster.image.kept == {}
    assert ask(cluster, (U, {PRODUCE: None})).records == []


def test_the_order_of_an_entity_makes_no_difference_not_even_to_what_kafka_wrote() -> None:
    cluster = Cluster(1)
    told = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in U_AND_C]
    cluster.append([ClientQuotaRecord(entity=told, key=PRODUCE, value=5.0, remove=False)])
    cluster.carry_out(ask(cluster, (tuple(reversed(U_AND_C)), {PRODUCE: 6.0, CONSUME: 7.0})))
    assert described(cluster.image) == {tuple(sorted(U_AND_C)): {PRODUCE: 6.0, CONSUME: 7.0}}
    cluster.carry_out(ask(cluster, (U_AND_C, {PRODUCE: None, CONSUME: None})))
    assert cluster.image.kept == {}


def test_an_entity_changes_altogether_or_not_at_all_and_others_beside_it() -> None:
    cluster = Cluster(1)
    other: Named = (("client-id", None),)
    decision = ask(cluster, (U, {PRODUCE: 10.0, "nokey": 1.0}), (other, {PRODUCE: 1.0}))
    assert [entry.error_code for entry in decision.response.entries] == [42, 0]
    cluster.carry_out(decision)
    assert described(cluster.image) == {other: {PRODUCE: 1.0}}
    twice = ask(cluster, (U, {PRODUCE: 10.0}), (U, {CONSUME: 10.0}))
    assert [entry.error_code for entry in twice.response.entries] == [42]
    assert twice.records == []


def test_what_is_only_tried_is_answered_and_not_told() -> None:
    cluster = Cluster(1)
    good = ask(cluster, (U, {PRODUCE: 10.0}), validate_only=True)
    assert ([entry.error_code for entry in good.response.entries], good.records) == ([0], [])
    bad = ask(cluster, (U, {PRODUCE: float("nan")}), validate_only=True)
    assert [entry.error_message for entry in bad.response.entries] == [
        f"Quota {PRODUCE} must be greater than 0"
    ]


def test_quotas_survive_a_snapshot() -> None:
    cluster = Cluster(1)
    cluster.carry_out(
        ask(cluster, (U_AND_C, {PRODUCE: 10.0}), ((("ip", None),), {"connection_creation_rate": 5.0}))
    )
    again = image_of(*to_records(cluster.image))
    assert described(again) == described(cluster.image) != {}


def test_a_strict_filter_wants_no_more_than_it_names() -> None:
    cluster = Cluster(1)
    cluster.carry_out(ask(cluster, (U, {PRODUCE: 1.0}), (U_AND_C, {PRODUCE: 2.0})))

    def found(strict: bool) -> int:
        component = ComponentData(entity_type="user", match_type=0, match="u")
        request = DescribeClientQuotasRequest(components=[component], strict=strict)
        return len(describe_quotas(cluster.image, request).entries or ())

    assert (found(False), found(True)) == (2, 1)


def test_the_largest_long_is_a_quota_though_no_float_is_just_that_much() -> None:
    cluster = Cluster(1)
    cluster.carry_out(ask(cluster, (U, {PRODUCE: float(2**63 - 1)})))
    assert described(cluster.image) == {U: {PRODUCE: 2.0**63}}
    (beyond,) = ask(cluster, (U, {PRODUCE: 2.0**64})).response.entries
    assert beyond.error_message == f"Proposed value for {PRODUCE} is too large for a LONG."
