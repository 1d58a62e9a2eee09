"""Commands on transactions that may need a producer id which nobody has had.

Whether they do is known only once they are decided: then they are asked again, with one at hand. An id that
turns out not to be needed after all is lost, which harms nobody.
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
    """No block of ids can be had at the moment; it is worth another try."""

    wire = wire_error("COORDINATOR_LOAD_IN_PROGRESS")


async def ask_with_fresh_id(transactional_id: str, command: Command, services: Services) -> Any:
    """The answer to a command, which is given a fresh id if it wants one."""
    try:
        return await _ask(transactional_id, command, None, services)
    except NeedsProducerId:
        return await _ask(transactional_id, command, await fresh_id(services), services)


async def _ask(transactional_id: str, command: Command, producer_id: int | None, services: Services) -> Any:
    return await services.transactions.ask(
        transactional_id, lambda shard, now, reply: command(shard, now, reply, producer_id)
    )


async def fresh_id(services: Services) -> int:
    """An id that nobody has had."""
    try:
        return await services.producer_ids.next()
    except BarnabasError as error:
        raise NoProducerId(str(error)) from error
