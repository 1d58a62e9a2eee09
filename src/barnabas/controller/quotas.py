"""Client quotas: by user, by client id, by both, or by address; a null name is the default of its type.

They are stored as records and described; nothing enforces them yet. An entity's quotas change together or not
at all. Kafka also accepts host names as addresses and resolves them; here nothing is resolved, so they are
refused.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from barnabas.controller.decisions import Decision, Refused
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import ClientQuotaRecord, QuotaEntity
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryDataResponse,
    OpData,
)
from barnabas.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)
from barnabas.protocol.messages.describe_client_quotas import EntityData as DescribedEntity
from barnabas.protocol.messages.describe_client_quotas import EntryData as DescribedEntry
from barnabas.protocol.schema import Message

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ANY = 2  # a component that matches every entity of its type

Entity = tuple[tuple[str, str | None], ...]  # (type, name) pairs, sorted by type


class _Range(NamedTuple):
    kind: str
    largest: float
    is_whole: bool = True


_LONG = _Range("a LONG", 2.0**63)  # the float nearest to the largest long
_INT = _Range("an INT", 2**31 - 1)
_DOUBLE = _Range("a DOUBLE", float("inf"), is_whole=False)
_FRACTION = 1e-6  # values this close to a whole number count as whole

_OF_CLIENTS = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": _DOUBLE,
    "controller_mutation_rate": _DOUBLE,
}
_OF_ADDRESSES = {"connection_creation_rate": _INT}


def alter_quotas(
    image: ClusterImage, request: AlterClientQuotasRequest
) -> Decision[AlterClientQuotasResponse]:
    """The changes, and a result for each named entity."""
    known = _quotas(image)
    entries = [(_entity(entry.entity), entry) for entry in request.entries]
    times = Counter(entity for entity, _ in entries)
    records: list[Message] = []
    results: list[EntryDataResponse] = []
    for entity, entry in dict(entries).items():
        try:
            if times[entity] > 1 or len({op.key for op in entry.ops}) < len(entry.ops):
                raise Refused("INVALID_REQUEST", f"Ignoring duplicate entity {_shown(entity)}")
            records += _altered(entity, entry, known.get(entity, {}))
            results.append(_result(entity))
        except Refused as refused:
            results.append(_result(entity, refused))
    response = AlterClientQuotasResponse(throttle_time_ms=0, entries=results)
    return Decision([] if request.validate_only else records, response)


def refuse_alterations(request: AlterClientQuotasRequest, refused: Refused) -> AlterClientQuotasResponse:
    """The same error for every named entity."""
    entities = dict.fromkeys(_entity(entry.entity) for entry in request.entries)
    return AlterClientQuotasResponse(
        throttle_time_ms=0, entries=[_result(entity, refused) for entity in entities]
    )


def _entity(named: list[EntityData]) -> Entity:
    return tuple(sorted({each.entity_type: each.entity_name for each in named}.items()))


def _shown(entity: Entity) -> str:
    inner = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{inner}}})"


def _result(entity: Entity, refused: Refused | None = None) -> EntryDataResponse:
    return EntryDataResponse(
        error_code=0 if refused is None else refused.error.code,
        error_message=None if refused is None else refused.told,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )


def _altered(entity: Entity, entry: EntryData, known: dict[str, ClientQuotaRecord]) -> list[Message]:
    allowed = _allowed_keys(entity)
    records: list[Message] = []
    for op in entry.ops:
        old = known.get(op.key)
        if op.remove:
            if old is not None:
                records.append(_record(old.entity, op))
            continue
        _check_value(op, allowed)
        if old is None or old.value != op.value:
            fresh = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity]
            # the image is keyed by an entity in the order of its first record
            records.append(_record(fresh if old is None else old.entity, op))
    return records


def _record(entity: list[QuotaEntity], op: OpData) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=entity, key=op.key, value=0.0 if op.remove else op.value, remove=op.remove
    )


def _allowed_keys(entity: Entity) -> dict[str, _Range]:
    if not entity:
        raise Refused("INVALID_REQUEST", "Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise Refused("INVALID_REQUEST", f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise Refused("INVALID_REQUEST", f"Empty {kind} not supported")
    names = dict(entity)
    if IP not in names:
        return _OF_CLIENTS
    if len(names) > 1:
        raise Refused(
            "INVALID_REQUEST",
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        )
    _check_address(names[IP])
    return _OF_ADDRESSES


def _check_address(address: str | None) -> None:
    from ipaddress import ip_address  # not needed at start

    try:
        if address is not None:
            ip_address(address)
    except ValueError:
        message = f"{address} is not a valid IP or resolvable host."
        raise Refused("INVALID_REQUEST", message) from None


def _check_value(op: OpData, allowed: dict[str, _Range]) -> None:
    value_range = allowed.get(op.key)
    if value_range is None:
        raise Refused("INVALID_REQUEST", f"Invalid configuration key {op.key}")
    if not op.value > 0:
        raise Refused("INVALID_REQUEST", f"Quota {op.key} must be greater than 0")
    if op.value > value_range.largest:
        message = f"Proposed value for {op.key} is too large for {value_range.kind}."
        raise Refused("INVALID_REQUEST", message)
    if value_range.is_whole and op.value - int(op.value) > _FRACTION:
        raise Refused("INVALID_REQUEST", f"{op.key} cannot be a fractional value.")


def _quotas(image: ClusterImage) -> dict[Entity, dict[str, ClientQuotaRecord]]:
    """Every quota, by entity and key."""
    found: dict[Entity, dict[str, ClientQuotaRecord]] = {}
    for record in image.kept.values():
        if isinstance(record, ClientQuotaRecord):
            entity = tuple(sorted((each.entity_type, each.entity_name) for each in record.entity))
            found.setdefault(entity, {})[record.key] = record
    return found


# ---- describe ---------------------------------------------------------------------------------------------


def describe_quotas(
    image: ClusterImage, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas of every entity that has all components of the filter; if strict, no others."""
    try:
        wanted = _filter(request.components)
    except Refused as refused:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=refused.error.code, error_message=refused.told, entries=None
        )
    quotas = _quotas(image)
    entries = [
        DescribedEntry(
            entity=[DescribedEntity(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ValueData(key=key, value=record.value) for key, record in sorted(quotas[entity].items())],
        )
        for entity in sorted(quotas, key=repr)
        if _matches(dict(entity), wanted, request.strict)
    ]
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=0, error_message="", entries=entries)


def _matches(names: dict[str, str | None], wanted: dict[str, ComponentData], strict: bool) -> bool:
    if strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (component.match_type == ANY or names[kind] == component.match)
        for kind, component in wanted.items()
    )


def _filter(components: list[ComponentData]) -> dict[str, ComponentData]:
    wanted: dict[str, ComponentData] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise Refused("INVALID_REQUEST", "Invalid empty entity type.")
        if kind in wanted:
            message = f"Entity type {kind} cannot appear more than once in the filter."
            raise Refused("INVALID_REQUEST", message)
        if kind not in (USER, CLIENT_ID, IP):
            raise Refused("UNSUPPORTED_VERSION", f"Unsupported entity type {kind}")
        _check_match(component)
        wanted[kind] = component
    if IP in wanted and len(wanted) > 1:
        raise Refused(
            "INVALID_REQUEST",
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component.",
        )
    return wanted


def _check_match(component: ComponentData) -> None:
    problem = None
    match component.match_type:
        case 0 if component.match is None:
            problem = "Request specified MATCH_TYPE_EXACT, but set match string to null."
        case 1 if component.match is not None:
            problem = "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
        case 2 if component.match is not None:
            problem = "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
        case 0 | 1 | 2:
            pass
        case other:
            problem = f"Unknown match type {other}"
    if problem is not None:
        raise Refused("INVALID_REQUEST", problem)
