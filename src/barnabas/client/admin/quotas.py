"""Client quotas: by user, by client id, by address, by default or by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.client.admin.engine import Engine, check, error_of, raise_first
from barnabas.protocol.messages import alter_client_quotas as altering
from barnabas.protocol.messages import describe_client_quotas as describing

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

_EXACTLY, _THE_DEFAULT, _ANY = 0, 1, 2


class QuotaEntity(NamedTuple):
    """The entity of a quota: names by type, None for the default."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> QuotaEntity:
        """`QuotaEntity.of({USER: "barnabas", CLIENT_ID: None})`"""
        return cls(tuple(sorted(parts.items())))


class Match(NamedTuple):
    """A filter for quotas: a type, and a name, the default (None) or any."""

    type: str
    name: str | None = None
    is_any: bool = False


class Quotas(Engine):
    """The part of an admin for quotas."""

    async def describe_client_quotas(
        self, matches: Iterable[Match] = (), *, is_strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas of the entities that match, by the quotas' names; with `is_strict`, entities without further
        types."""
        request = describing.DescribeClientQuotasRequest(
            components=[
                describing.ComponentData(
                    entity_type=each.type,
                    match_type=_ANY if each.is_any else _THE_DEFAULT if each.name is None else _EXACTLY,
                    match=None if each.is_any else each.name,
                )
                for each in matches
            ],
            strict=is_strict,
        )
        response = await self._ask(request, describing.DescribeClientQuotasResponse, is_safe=True)
        check(response.error_code, "cannot describe quotas", response.error_message)
        return {
            QuotaEntity.of({part.entity_type: part.entity_name for part in entry.entity}): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas of entities, by the quotas' names; None removes one."""
        request = altering.AlterClientQuotasRequest(
            entries=[
                altering.EntryData(
                    entity=[
                        altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts
                    ],
                    ops=[
                        altering.OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in quotas.items()
                    ],
                )
                for entity, quotas in changes.items()
            ],
            validate_only=validate_only,
        )
        response, _ = await self._change(
            request,
            altering.AlterClientQuotasResponse,
            lambda answer: [entry.error_code for entry in answer.entries],
        )
        raise_first(
            error_of(entry.error_code, "cannot alter quotas", entry.error_message)
            for entry in response.entries
        )
