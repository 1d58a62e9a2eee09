"""Commands on transactions that may need a new producer id.

Whether a command needs one is known only when it is decided: then it is repeated with a new id. An id that
turns out not to be needed after all is lost, which does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.coordination.effects import Effects, Now, Reply
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.transactions.transaction import NeedsProducerId

if TYPE_CHECKING:
    from barnabas.broker.services import Services
    from barnabas.transactions.shard import TransactionShard

Command = Callable[["TransactionShard", Now, Reply, int | None], Effects]


class NoProducerId(BarnabasError):
    """There is no block of ids at the moment; the client may retry."""

    wire = wire_error("COORDINATOR_LOAD_IN_PROGRESS")


async def ask_with_fresh_id(transactional_id: str, command: Command, services: Services) -> Any:
    """The response to a command; the command gets a new producer id if it needs one."""
    try:
        return await _ask(transactional_id, command, None, services)
    except NeedsProducerId:
        return await _ask(transactional_id, command, await fresh_id(services), services)


async def _ask(transactional_id: str, command: Command, producer_id: int | None, services: Services) -> Any:
    return await services.transactions.ask(
        transactional_id, lambda shard, now, reply: command(shard, now, reply, producer_id)
    )


async def fresh_id(services: Services) -> int:
    """A producer id that was never used."""
    try:
        return await services.producer_ids.next()
    except BarnabasError as error:
        raise NoProducerId(str(error)) from error
