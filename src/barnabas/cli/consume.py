"""`barnabas consume TOPIC`: the records of a topic, from anywhere to anywhere, or as they come.

Without `--follow` it reads what is there when it starts, and ends. With it partitions that are added later
are read, too; `--until` a time ends it at the first record of that time or, once that time is past, where the
log ends then. Records of one partition come in their order; those of several as they arrive. Ctrl-C ends it
with a count; where it follows that is its proper end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import BinaryIO

from barnabas.cli.connecting import Session, connected
from barnabas.cli.failures import INTERRUPTED, CommandFailed
from barnabas.cli.options import command_parser, naturals, positive, wants_json
from barnabas.cli.records.filters import Filter, parse_filter
from barnabas.cli.records.formats import Format, Readable, json_line, template
from barnabas.cli.records.positions import EARLIEST, LATEST, Position, Range, parse_position, ranges_of
from barnabas.cli.records.progress import Progress
from barnabas.cli.running import run_command
from barnabas.client.consumer import Consumer, ConsumerConfig, Reset
from barnabas.client.errors import TimedOut
from barnabas.client.fetched import ConsumerRecord
from barnabas.client.metadata import TopicPartition
from barnabas.core.clock import SystemClock

_POLL_MS = 100
_POLL_RECORDS = 5000
_NEW_PARTITIONS_MS = 5_000  # within this time one that is added is noticed
_EXAMPLES = r"""
barnabas consume orders                                  everything that is there
barnabas consume orders --follow                         what comes from now on
barnabas consume orders --from -10 --follow              the last ten of each partition, and on
barnabas consume orders --from -1h --partition 0,2       the last hour, of two partitions
barnabas consume orders --from 2026-01-01 --until 2026-01-02T12:00
barnabas consume orders --filter key=K. --filter value.state=open
barnabas consume orders --format '{offset}\t{key}\t{value}'
barnabas consume orders --json > orders.jsonl            `barnabas produce copy --json` takes it back
"""


def main(arguments: Sequence[str]) -> int:
    """Read a topic; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("barnabas consume", "Read the records of a topic.", _EXAMPLES)
    parser.add_argument("topic", metavar="TOPIC")
    _add_what(parser)
    _add_how(parser)
    parser.set_defaults(run=connected(_consume))
    return parser


def _add_what(parser: argparse.ArgumentParser) -> None:
    position = partial(parse_position, now_ms=SystemClock().wall_ms())
    where = parser.add_argument_group("what to read")
    where.add_argument("--partition", metavar="N[,N-M]", type=naturals, help="only these (default: all)")
    where.add_argument(
        "--from",
        dest="begin",
        metavar="WHERE",
        type=position,
        help="earliest, latest, an offset, the last N (-10), a time (2026-01-01T10:00) or a time ago (-1h); "
        "default: earliest, with --follow latest",
    )
    where.add_argument(
        "--until",
        metavar="WHERE",
        type=position,
        help="stop before that offset or time (default: the end as it is now, with --follow none)",
    )
    where.add_argument("--count", metavar="N", type=positive, help="stop after so many records")
    where.add_argument("--follow", "-f", action="store_true", help="wait for more at the end")
    where.add_argument(
        "--filter",
        metavar="FIELD=TEXT",
        type=parse_filter,
        action="append",
        default=[],
        dest="filters",
        help="only records whose key, value, value.PATH (in JSON) or header.NAME is that; != is not, "
        "~ matches a regular expression; may be repeated",
    )
    where.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed leaves out aborted and undecided transactions",
    )


def _add_how(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how to print it")
    how.add_argument(
        "--format",
        metavar="TEMPLATE",
        help="with {topic} {partition} {offset} {timestamp} {time} {key} {value} {headers} {key_size} "
        "{value_size}, \\n \\t \\0; a newline follows unless it ends with \\c",
    )
    how.add_argument("--null", metavar="TEXT", default="", help="what stands for null in --format")
    how.add_argument("--values", action="store_true", help="only values, one a line: --format '{value}'")
    how.add_argument("--output", "-o", metavar="FILE", help="write to a file, with progress at a terminal")


def _format(options: argparse.Namespace, out: BinaryIO) -> Format:
    if sum((wants_json(options), options.format is not None, options.values)) > 1:
        raise CommandFailed("--json, --format and --values exclude each other", "choose one of them")
    if wants_json(options):
        return json_line
    if options.values or options.format is not None:
        return template("{value}" if options.values else options.format, options.null)
    return Readable(is_coloured=out.isatty())


async def _consume(session: Session, options: argparse.Namespace) -> int:
    topic = await session.topic(options.topic)
    known = [partition.partition for partition in topic.partitions]
    wanted = known if options.partition is None else options.partition
    if missing := [each for each in wanted if each not in known]:
        raise CommandFailed(
            f"{topic.name} has no partition {missing[0]}", f"it has {len(known)}, counted from 0"
        )
    client = session.client_config._replace(allow_auto_topic_creation=False)
    if options.follow:
        client = client._replace(metadata_max_age_ms=_NEW_PARTITIONS_MS)
    config = ConsumerConfig(
        reset=Reset.NONE,
        read_committed=options.isolation == "read_committed",
        max_poll_records=_POLL_RECORDS,
        default_timeout_ms=int(session.timeout_s * 1000),
        client=client,
    )
    with contextlib.ExitStack() as stack:
        out: BinaryIO = sys.stdout.buffer
        if options.output is not None:
            try:
                out = stack.enter_context(open(options.output, "wb"))  # noqa: ASYNC230
            except OSError as error:
                raise CommandFailed(f"cannot write {options.output}: {error.strerror}") from error
        write = _format(options, out)
        async with session.consumer(config) as consumer:
            partitions = [TopicPartition(topic.name, each) for each in wanted]
            return await _Reading(session, consumer, options, out, write).run(partitions)


class _Reading:
    """One run: from ranges to output."""

    def __init__(
        self,
        session: Session,
        consumer: Consumer,
        options: argparse.Namespace,
        out: BinaryIO,
        write: Format,
    ) -> None:
        self._session = session
        self._consumer = consumer
        self._options = options
        self._out = out
        self._format = write
        self._filters: list[Filter] = options.filters
        self._is_interrupted = False
        self._open: dict[TopicPartition, Range] = {}  # what is not read to its end
        self._until_ms: int | None = None
        self._is_endless = False  # nothing, or only a time, says where partitions end
        self._known: dict[TopicPartition, None] = {}
        self._left = 0  # offsets up to the ends that are known

    async def run(self, partitions: Sequence[TopicPartition]) -> int:
        options = self._options
        begin = options.begin or Position(word=LATEST if options.follow else EARLIEST)
        until: Position | None = options.until
        if options.follow and until is not None and until.time_ms is not None:
            self._until_ms, until = until.time_ms, None
        elif not options.follow and until is None:
            until = Position(word=LATEST)
        ranges = await ranges_of(self._consumer, partitions, begin, until, is_followed=options.follow)
        self._known, self._is_endless = dict.fromkeys(partitions), until is None
        self._open = {each: one for each, one in ranges.items() if one.end is None or one.start < one.end}
        total = sum((one.end or one.start) - one.start for one in self._open.values())
        is_apart = not self._out.isatty()
        progress = Progress(self._session.clock, total=total or None, is_shown=is_apart)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            await self._read_all(progress)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            progress.end()
        self._out.flush()
        if self._is_interrupted or (is_apart and sys.stderr.isatty()):
            sys.stderr.write(f"{progress.totals()}\n")
        return INTERRUPTED if self._is_interrupted and not options.follow else 0

    def _interrupt(self) -> None:
        self._is_interrupted = True

    async def _read_all(self, progress: Progress) -> None:
        consumer, clock = self._consumer, self._session.clock
        consumer.assign(self._open)
        for partition, one in self._open.items():
            consumer.seek(partition, one.seek)
        heard = clock.monotonic()
        while self._open and not self._is_interrupted:
            records = await consumer.poll(_POLL_MS, self._limit(progress))
            if records:
                heard = clock.monotonic()
                self._take(records, progress)
                if self._is_enough(progress):
                    return
            elif not self._options.follow and clock.monotonic() - heard > self._session.timeout_s:
                raise TimedOut(f"nothing came of {', '.join(map(str, self._open))} in time")
            if self._is_endless:
                self._add_partitions()
                await self._end_in_time()
            if await self._close_finished(progress):
                heard = clock.monotonic()

    def _limit(self, progress: Progress) -> int:
        count: int | None = self._options.count
        if count is None or self._filters:
            return _POLL_RECORDS
        return min(_POLL_RECORDS, count - progress.records)

    def _is_enough(self, progress: Progress) -> bool:
        count: int | None = self._options.count
        return count is not None and progress.records >= count

    def _take(self, records: Sequence[ConsumerRecord], progress: Progress) -> None:
        written = []
        size_bytes = 0
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            one = self._open.get(partition)
            if one is None or record.offset < one.start or (one.end is not None and record.offset >= one.end):
                continue
            if self._until_ms is not None and record.timestamp_ms >= self._until_ms:
                self._finish(partition)
                continue
            if all(wants(record) for wants in self._filters):
                written.append(self._format(record))
                size_bytes += len(record.key or b"") + len(record.value or b"")
                if self._options.count is not None and progress.records + len(written) >= self._options.count:
                    break
        if written:
            self._out.write(b"".join(written))
            self._out.flush()
        progress.add(len(written), size_bytes)

    def _add_partitions(self) -> None:
        """Read those that came into being meanwhile, too: all that is in them is new."""
        topic = self._consumer.cluster.metadata.topics.get(self._options.topic)
        if topic is None or self._options.partition is not None:
            return
        there = [TopicPartition(topic.name, each) for each in topic.leaders]
        if added := [each for each in there if each not in self._known]:
            self._known |= dict.fromkeys(added)
            self._open |= dict.fromkeys(added, Range(0, None, 0))
            self._consumer.assign(self._open)
            for partition in added:
                self._consumer.seek(partition, 0)

    async def _end_in_time(self) -> None:
        """Once the time to end at is past, what is there by then is all that is read."""
        if self._until_ms is not None and self._session.clock.wall_ms() >= self._until_ms:
            ends = await self._consumer.end_offsets(*self._open)
            self._open = {each: one._replace(end=ends[each]) for each, one in self._open.items()}
            self._is_endless = False

    async def _close_finished(self, progress: Progress) -> bool:
        """Be done with what is read to its end; True if anything was read, were it only gaps and markers."""
        left = 0
        for partition, one in list(self._open.items()):
            if one.end is not None:
                position = await self._consumer.position(partition)
                left += max(0, one.end - position)
                if position >= one.end:  # what is left of it, if anything, are markers and gaps
                    self._finish(partition)
        progress.left(left)
        has_moved, self._left = left != self._left, left
        return has_moved

    def _finish(self, partition: TopicPartition) -> None:
        del self._open[partition]
        self._consumer.pause(partition)
