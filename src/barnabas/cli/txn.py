"""`barnabas txn`: transactions as coordinators and partitions know them; those that hang, and their end.

A transaction hangs where a partition has it open and no coordinator will ever end it: readers of committed
records wait there for ever. `hanging` finds such, `abort` ends one. One that a coordinator does know of is
ended through it, with `terminate`, which also fences its producer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from barnabas.cli.asking import be_sure
from barnabas.cli.connecting import Session, connected
from barnabas.cli.failures import CommandFailed, unknown_name
from barnabas.cli.groups.scope import Scope, partitions_in, scope
from barnabas.cli.options import INT16, INT32, Actions, command_parser, duration, integer, natural, some_of
from barnabas.cli.running import run_command
from barnabas.cli.times import duration_text, time_text
from barnabas.client.admin import (
    ActiveProducer,
    OpenTransaction,
    ResourceType,
    TransactionDescription,
)
from barnabas.client.errors import UnknownTransactionalId
from barnabas.client.metadata import TopicPartition
from barnabas.protocol.channel import NotSpoken

STATES = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
]
_LONGEST = "transaction.max.timeout.ms"
_KAFKAS_LONGEST_MS = 900_000
_SLACK_MS = 300_000  # clocks of producers differ from those of brokers

_LIST = """
barnabas txn list
barnabas txn list --state ongoing --older-than 5m
barnabas txn list --pattern 'billing-.*' --json
"""
_DESCRIBE = """
barnabas txn describe billing-1
barnabas txn describe billing-1 billing-2 --json
"""
_PRODUCERS = """
barnabas txn producers orders:0
barnabas txn producers orders --broker 2        as that replica remembers them
"""
_HANGING = """
barnabas txn hanging                            look at every partition
barnabas txn hanging --topic orders:0,1 --open-for 1h
barnabas txn hanging --broker 2
"""
_ABORT = """
barnabas txn abort orders:0 --offset 1742       the one that begins there; `hanging` tells
barnabas txn abort orders:0 --producer-id 7 --producer-epoch 0 --coordinator-epoch 3 --yes
"""
_TERMINATE = """
barnabas txn terminate billing-1
"""


def main(arguments: Sequence[str]) -> int:
    """Do one thing to transactions; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    examples = "".join(
        text.strip().splitlines()[0] + "\n" for text in (_LIST, _DESCRIBE, _PRODUCERS, _HANGING, _ABORT)
    )
    parser = command_parser("barnabas txn", "The transactions of a cluster.", examples)
    actions = Actions(parser)
    _add_list(actions)
    describe = actions.add("describe", "show transactional ids", _DESCRIBE, connected(_describe))
    describe.add_argument("ids", metavar="ID", nargs="+")
    producers = actions.add(
        "producers", "show the producers that partitions remember", _PRODUCERS, connected(_producers)
    )
    producers.add_argument("scopes", metavar="TOPIC[:0,3,5-7]", type=scope, nargs="+")
    producers.add_argument("--broker", type=natural, metavar="ID", help="ask its replicas, not the leaders")
    _add_hanging(actions)
    _add_abort(actions)
    terminate = actions.add(
        "terminate",
        "abort what a transactional id has open, fence its producer",
        _TERMINATE,
        connected(_terminate),
    )
    terminate.add_argument("id", metavar="ID")
    terminate.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _add_list(actions: Actions) -> None:
    parser = actions.add("list", "list transactional ids and their states", _LIST, connected(_list))
    parser.add_argument("--state", type=some_of(STATES), metavar="S[,S]", default=[], help=", ".join(STATES))
    parser.add_argument(
        "--producer-id", type=natural, metavar="ID", action="append", default=[], dest="producer_ids"
    )
    parser.add_argument("--older-than", type=duration, metavar="5m", help="open for longer than that")
    parser.add_argument("--pattern", metavar="RE", help="a regular expression for the whole id")


def _add_hanging(actions: Actions) -> None:
    parser = actions.add(
        "hanging", "find transactions that nobody will ever end", _HANGING, connected(_hanging)
    )
    parser.add_argument(
        "--topic", type=scope, metavar="T[:0,3,5-7]", action="append", default=[], dest="scopes"
    )
    parser.add_argument("--broker", type=natural, metavar="ID", help="only what is there")
    parser.add_argument(
        "--open-for", type=duration, metavar="20m", help=f"for that long (default: {_LONGEST} and 5 minutes)"
    )


def _add_abort(actions: Actions) -> None:
    parser = actions.add("abort", "end a transaction that hangs in a partition", _ABORT, connected(_abort))
    parser.add_argument("scope", metavar="TOPIC:PARTITION", type=_one_partition)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--offset", type=natural, metavar="N", help="where it begins")
    which.add_argument("--producer-id", type=natural, metavar="ID", help="of a broker before 3.0")
    parser.add_argument("--producer-epoch", type=partial(natural, most=INT16), metavar="N")
    parser.add_argument("--coordinator-epoch", type=partial(integer, most=INT32), metavar="N")
    parser.add_argument("--force", action="store_true", help="also where its coordinator knows of it")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _one_partition(text: str) -> Scope:
    found = scope(text)
    if found.partitions is None or len(found.partitions) != 1 or found.partitions[0] > INT32:
        raise argparse.ArgumentTypeError(f"{text!r}: write TOPIC:PARTITION")
    return found


# ---- what is shown ---------------------------------------------------------------------------------------


async def _list(session: Session, options: argparse.Namespace) -> None:
    found = await session.admin.list_transactions(
        states=options.state,
        producer_ids=options.producer_ids,
        older_than_ms=options.older_than,
        pattern=options.pattern,
    )
    if session.output.as_json:
        session.output.document([each._asdict() for each in found])
    elif found:
        session.output.table(("id", "producer", "state", "coordinator"), found)


async def _described(session: Session, ids: list[str]) -> list[TransactionDescription]:
    try:
        found = await session.admin.describe_transactions(ids)
    except UnknownTransactionalId:
        known = [each.transactional_id for each in await session.admin.list_transactions()]
        for name in ids:
            if name not in known:
                raise unknown_name("transactional id", name, known, "barnabas txn list") from None
        raise
    return [found[name] for name in dict.fromkeys(ids)]


async def _describe(session: Session, options: argparse.Namespace) -> None:
    found = await _described(session, options.ids)
    if session.output.as_json:
        session.output.document(
            [{**each._asdict(), "partitions": [at._asdict() for at in each.partitions]} for each in found]
        )
        return
    now_ms = session.clock.wall_ms()
    session.output.table(
        (
            "id",
            "state",
            "producer",
            "epoch",
            "timeout",
            "open since",
            "open for",
            "partitions",
            "coordinator",
        ),
        [
            (
                each.transactional_id,
                each.state,
                each.producer_id,
                each.producer_epoch,
                duration_text(each.timeout_ms),
                None if each.start_time_ms is None else time_text(each.start_time_ms),
                None if each.start_time_ms is None else duration_text(now_ms - each.start_time_ms),
                each.partitions,
                each.coordinator,
            )
            for each in found
        ],
    )


async def _producers(session: Session, options: argparse.Namespace) -> None:
    if options.broker is not None:
        await session.check_broker(options.broker)
    partitions = await partitions_in(session, options.scopes)
    found = await session.admin.describe_producers(partitions, node_id=options.broker)
    rows = [OpenTransaction(at, each) for at in partitions for each in found[at]]
    if session.output.as_json:
        session.output.document([_fact(each) for each in rows])
    elif rows:
        columns = ["topic", "partition", "producer", "epoch", "last sequence", "last time"]
        columns += ["coordinator epoch", "open since offset"]
        session.output.table(columns, [_producer_row(*each) for each in rows])


def _producer_row(at: TopicPartition, producer: ActiveProducer) -> list[object]:
    return [
        *at,
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        time_text(producer.last_timestamp_ms),
        producer.coordinator_epoch,
        producer.transaction_start_offset,
    ]


def _fact(open_one: OpenTransaction) -> dict[str, Any]:
    return {**open_one.partition._asdict(), **open_one.producer._asdict()}


async def _hanging(session: Session, options: argparse.Namespace) -> None:
    partitions = await _searched(session, options.scopes, options.broker)
    open_for_ms = options.open_for
    if open_for_ms is None:
        open_for_ms = await _longest_ms(session) + _SLACK_MS
    found = await session.admin.find_hanging_transactions(partitions, open_for_ms, node_id=options.broker)
    if session.output.as_json:
        session.output.document([_fact(each) for each in found])
        return
    if not found:
        session.output.say("no transaction hangs")
        return
    columns = ["topic", "partition", "begins at", "producer", "epoch", "coordinator epoch", "last time"]
    now_ms = session.clock.wall_ms()
    session.output.table([*columns, "open for"], [_hanging_row(each, now_ms) for each in found])
    session.output.say("`barnabas txn abort TOPIC:PARTITION --offset N` ends one")


def _hanging_row(open_one: OpenTransaction, now_ms: int) -> list[object]:
    at, producer = open_one
    return [
        *at,
        producer.transaction_start_offset,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        time_text(producer.last_timestamp_ms),
        duration_text(now_ms - producer.last_timestamp_ms),
    ]


async def _searched(session: Session, scopes: list[Scope], broker: int | None) -> list[TopicPartition]:
    """The partitions that are meant; of a broker only those that it has a replica of."""
    if broker is not None:
        await session.check_broker(broker)
    topics = await session.admin.describe_topics()
    there = {
        TopicPartition(name, each.partition): each
        for name, topic in topics.items()
        for each in topic.partitions
    }
    named = await partitions_in(session, scopes) if scopes else sorted(there)
    if broker is None:
        return [at for at in named if at not in there or there[at].leader >= 0]
    return [at for at in named if at in there and broker in there[at].replicas]


async def _longest_ms(session: Session) -> int:
    """The longest time that a transaction may be open for, as some broker has it set."""
    broker = (await session.admin.describe_cluster()).brokers[0]
    entries = await session.admin.describe_configs(ResourceType.BROKER, str(broker.node_id), [_LONGEST])
    value = entries[_LONGEST].value if _LONGEST in entries else None
    return int(value) if value is not None and value.isdecimal() else _KAFKAS_LONGEST_MS


# ---- what is ended ---------------------------------------------------------------------------------------


async def _abort(session: Session, options: argparse.Namespace) -> None:
    (at,) = await partitions_in(session, [options.scope])
    producer = await _meant(session, options, at)
    if not options.force:
        await _check_it_hangs(session, OpenTransaction(at, producer))
    be_sure(f"Abort the transaction of producer {producer.producer_id} in {at}?", is_sure=options.yes)
    await session.admin.abort_transaction(
        at, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
    )
    session.output.done(
        {**at._asdict(), "producer_id": producer.producer_id, "aborted": True},
        f"the transaction of producer {producer.producer_id} in {at} is aborted",
    )


async def _meant(session: Session, options: argparse.Namespace, at: TopicPartition) -> ActiveProducer:
    """Which transaction: by where it begins, or by all that a broker would tell of it."""
    if options.offset is None:
        if options.producer_epoch is None or options.coordinator_epoch is None:
            raise CommandFailed("--producer-id needs --producer-epoch and --coordinator-epoch")
        return ActiveProducer(
            options.producer_id, options.producer_epoch, -1, -1, options.coordinator_epoch, None
        )
    for producer in (await session.admin.describe_producers([at]))[at]:
        if producer.transaction_start_offset == options.offset:
            return producer
    raise CommandFailed(
        f"no transaction that begins at {options.offset} is open in {at}",
        f"`barnabas txn producers {at.topic}:{at.partition}` shows those that are",
    )


async def _check_it_hangs(session: Session, open_one: OpenTransaction) -> None:
    """One that its coordinator has is to be ended in all its partitions, not in one alone."""
    try:
        if await session.admin.unknown_to_coordinators([open_one]):
            return
        listed = await session.admin.list_transactions(producer_ids=[open_one.producer.producer_id])
    except NotSpoken:  # brokers before 3.0 do not tell what they coordinate
        return
    if listed:
        name, _, state, _ = listed[0]
        raise CommandFailed(
            f"it does not hang: transactional id {name!r} has it ({state})",
            f"`barnabas txn terminate {name}` ends it everywhere; --force here alone",
        )


async def _terminate(session: Session, options: argparse.Namespace) -> None:
    (found,) = await _described(session, [options.id])
    be_sure(f"Abort what {options.id} has open ({found.state}), fence its producer?", is_sure=options.yes)
    fenced = (await session.admin.fence_producers([options.id]))[options.id]
    session.output.done(
        {"transactional_id": options.id, **fenced._asdict()},
        f"{options.id} has nothing open; its producer {fenced.producer_id} is fenced "
        f"below epoch {fenced.producer_epoch}",
    )
