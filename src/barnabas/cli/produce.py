"""`barnabas produce TOPIC`: lines, JSON or whole files become records.

Input is read as fast as the cluster takes it, and no more of it is held than the producer's buffer. What
cannot be sent is told at the end with its place and its reason, and makes the exit status 1; the rest is
sent nevertheless.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from barnabas.cli.connecting import Session, connected
from barnabas.cli.failures import FAILED, INTERRUPTED, OK, CommandFailed, explained
from barnabas.cli.options import command_parser, natural, positive, setting, wants_json
from barnabas.cli.records.inputs import (
    STANDARD_INPUT,
    Defaults,
    NewRecord,
    Parse,
    json_parser,
    lines,
    plain_parser,
    shown_name,
    size_of_inputs,
    whole,
)
from barnabas.cli.records.progress import Progress
from barnabas.cli.running import guarded
from barnabas.client.batches import RecordMetadata
from barnabas.client.errors import UnknownTopic
from barnabas.client.producer import ALL, Producer, ProducerConfig
from barnabas.core.errors import BarnabasError
from barnabas.records.compression import Codec

_SHOWN_FAILURES = 10
_CREATION_TIMEOUT_S = 5.0
_ACKS = {"all": ALL, "-1": ALL, "1": 1, "0": 0}
_EXAMPLES = """
echo 'dear sir' | barnabas produce letters                         a line, a record
barnabas produce letters --key-separator : < letters.txt           key:value
barnabas produce letters --whole photo.jpg --key photo             a file, a record
barnabas produce letters --header source=shell --compression zstd *.log
barnabas consume orders --json | barnabas produce copy --json      a topic copied
echo '{"key":"K.","value":{"state":"open"}}' | barnabas produce cases --json
"""


def main(arguments: Sequence[str]) -> int:
    """Write to a topic; the exit status."""
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)  # options may stand between topic and files
    return guarded(lambda: options.run(options), parser.prog, as_json=wants_json(options))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "barnabas produce",
        "Write records to a topic: every line of the input, or what --json or --whole say.",
        _EXAMPLES,
        json_help="a line is a JSON object as `consume --json` prints it; totals are printed as JSON",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("files", metavar="FILE", nargs="*", help="what to read (default: standard input)")
    _add_records(parser)
    _add_sending(parser)
    parser.set_defaults(run=connected(_produce))
    return parser


def _add_records(parser: argparse.ArgumentParser) -> None:
    records = parser.add_argument_group("records")
    records.add_argument(
        "--key-separator", metavar="TEXT", help="what stands between key and value in a line"
    )
    records.add_argument("--whole", action="store_true", help="a whole file is a value")
    records.add_argument("--key", metavar="TEXT", help="the key of records that have none")
    records.add_argument(
        "--header", metavar="NAME=TEXT", type=setting, action="append", default=[], help="may be repeated"
    )
    records.add_argument("--partition", metavar="N", type=natural, help="where to (default: the key decides)")
    records.add_argument(
        "--repartition", action="store_true", help="with --json: do not heed the partitions in the input"
    )
    records.add_argument("--null", metavar="TEXT", help="a key or value that is this text is null")


def _add_sending(parser: argparse.ArgumentParser) -> None:
    sending = parser.add_argument_group("sending")
    sending.add_argument(
        "--compression", choices=[codec.name.lower() for codec in Codec], default="none", help="of batches"
    )
    sending.add_argument(
        "--acks", choices=sorted(_ACKS), default="all", help="who must have it (default: all)"
    )
    sending.add_argument("--rate", metavar="N", type=positive, help="at most so many records a second")
    sending.add_argument(
        "--max-bytes", metavar="N", type=positive, default=1 << 20, help="the largest record (default: 1 MiB)"
    )
    sending.add_argument("--quiet", "-q", action="store_true", help="no totals")


def _config(session: Session, options: argparse.Namespace) -> ProducerConfig:
    acks = _ACKS[options.acks]
    timeout_ms = int(session.timeout_s * 1000)
    return ProducerConfig(
        acks=acks,
        idempotence=acks == ALL,
        compression=Codec[options.compression.upper()],
        max_request_bytes=options.max_bytes + 1024,  # a batch's header and what surrounds a record
        buffer_bytes=max(ProducerConfig().buffer_bytes, 4 * options.max_bytes),
        max_block_ms=timeout_ms,
        delivery_timeout_ms=timeout_ms,
        client=session.client_config,
    )


async def _produce(session: Session, options: argparse.Namespace) -> int:
    config = _config(session, options)
    inputs = options.files or [STANDARD_INPUT]
    if options.key_separator == "":
        raise CommandFailed("--key-separator is empty", "name what stands between key and value, as in :")
    if options.key_separator is not None and wants_json(options):
        raise CommandFailed("--key-separator is for plain lines", 'in JSON a key is written as "key"')
    progress = Progress(
        session.clock, total=size_of_inputs(inputs), is_shown=not sys.stdin.isatty() or bool(options.files)
    )
    async with session.producer(config) as producer:
        await _await_topic(session, producer, options.topic)
        if STANDARD_INPUT in inputs and sys.stdin.isatty() and sys.stderr.isatty() and not options.quiet:
            sys.stderr.write("a line is a record; Ctrl-D ends\n")
        sending = _Sending(session, producer, options, progress)
        is_interrupted = await sending.run(inputs)
    sending.report()
    if is_interrupted:
        return INTERRUPTED
    return FAILED if sending.failed else OK


async def _await_topic(session: Session, producer: Producer, topic: str) -> None:
    """A topic that is not there comes into being by being asked for, where the cluster does that."""
    try:
        async with asyncio.timeout(min(_CREATION_TIMEOUT_S, session.timeout_s)):
            await producer.partitions_of(topic)
    except (UnknownTopic, TimeoutError):
        await session.topic(topic)  # fails, with the nearest names


class _Place(NamedTuple):
    """Where in the input a record stands; line 0 is all of it."""

    name: str
    line: int

    def __str__(self) -> str:
        return shown_name(self.name) + (f", line {self.line}" if self.line else "")


class _Failure:
    """What is wrong with a record, and with how many others alike: a full disk is told once."""

    def __init__(self, where: _Place) -> None:
        self.where = where
        self.records = 0

    def __str__(self) -> str:
        return f"{self.where}" + (f", and {self.records - 1:,} more" if self.records > 1 else "")


class _Sending:
    """One run: from inputs to acknowledgements."""

    def __init__(
        self, session: Session, producer: Producer, options: argparse.Namespace, progress: Progress
    ) -> None:
        self._session = session
        self._producer = producer
        self._options = options
        self._progress = progress
        self._written: dict[int, int] = {}  # partition -> records
        self.failed = 0
        self._failures: dict[str, _Failure] = {}  # why -> what failed

    async def run(self, inputs: Sequence[str]) -> bool:
        """Send everything; True where Ctrl-C ended it before."""
        loop = asyncio.get_running_loop()
        reading = loop.create_task(self._read(inputs))
        loop.add_signal_handler(signal.SIGINT, reading.cancel)
        try:
            await reading
        except asyncio.CancelledError:
            if not reading.cancelled():
                raise
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            await self._producer.flush()  # what was taken is sent, whatever ended it
            self._progress.end()
        return reading.cancelled()

    async def _read(self, inputs: Sequence[str]) -> None:
        pace = _Pace(self._session, self._options.rate)
        for name in inputs:
            async with aclosing(self._records(name)) as records:
                async for record, where in records:
                    await pace.wait()
                    await self._send(record, where)

    async def _records(self, name: str) -> AsyncGenerator[tuple[NewRecord, _Place], None]:
        parse = _parse(self._options)
        if self._options.whole:
            data = await whole(name, self._options.max_bytes)
            self._progress.done += len(data)
            yield parse(data), _Place(name, 0)
            return
        number = 0
        async with aclosing(lines(name, self._options.max_bytes)) as source:
            async for line, read_bytes in source:
                number += 1
                self._progress.done += read_bytes
                where = _Place(name, number)
                try:
                    record = parse(self._held(line))
                except BarnabasError as error:
                    self._fail(where, error)
                else:
                    yield record, where

    def _held(self, line: bytes | None) -> bytes:
        if line is None:
            raise CommandFailed(
                f"longer than {self._options.max_bytes} bytes",
                "raise --max-bytes and the topic's max.message.bytes",
            )
        return line

    async def _send(self, record: NewRecord, where: _Place) -> None:
        try:
            written = await self._producer.send(
                self._options.topic,
                record.value,
                record.key,
                record.partition,
                record.headers,
                record.timestamp_ms,
            )
        except BarnabasError as error:
            self._fail(where, error)
            return
        size_bytes = len(record.key or b"") + len(record.value or b"")

        def settled(future: asyncio.Future[RecordMetadata]) -> None:
            error = future.exception()
            if error is None:
                partition = future.result().partition
                self._written[partition] = self._written.get(partition, 0) + 1
                self._progress.add(1, size_bytes)
            else:
                assert isinstance(error, BarnabasError)
                self._fail(where, error)

        written.add_done_callback(settled)

    def _fail(self, where: _Place, error: BarnabasError) -> None:
        self.failed += 1
        failure = explained(error)
        why = str(failure) + (f"; {failure.next_step}" if failure.next_step else "")
        if why in self._failures or len(self._failures) < _SHOWN_FAILURES:
            self._failures.setdefault(why, _Failure(where)).records += 1

    def report(self) -> None:
        """What was sent, where to, how fast; what was not, and why."""
        progress, output = self._progress, self._session.output
        for why, failure in self._failures.items():
            sys.stderr.write(f"barnabas produce: {failure}: {why}\n")
        if untold := self.failed - sum(failure.records for failure in self._failures.values()):
            sys.stderr.write(f"barnabas produce: and {untold:,} more failed, for other reasons\n")
        if self._options.quiet:
            return
        partitions = dict(sorted(self._written.items()))
        if output.as_json:
            output.document(self._document(partitions))
            return
        where = ", ".join(f"{partition}: {count:,}" for partition, count in partitions.items())
        text = f"{self._options.topic}: {progress.totals()}"
        text += f"; by partition {where}" if len(partitions) > 1 else ""
        output.say(text + (f"; {self.failed:,} failed" if self.failed else ""))

    def _document(self, partitions: dict[int, int]) -> dict[str, Any]:
        return {
            "topic": self._options.topic,
            "records": self._progress.records,
            "bytes": self._progress.size_bytes,
            "seconds": round(self._progress.seconds, 3),
            "partitions": {str(partition): count for partition, count in partitions.items()},
            "failed": self.failed,
            "failures": [
                {"where": str(failure.where), "why": why, "records": failure.records}
                for why, failure in self._failures.items()
            ],
        }


def _parse(options: argparse.Namespace) -> Parse:
    defaults = Defaults(
        key=None if options.key is None else options.key.encode(),
        headers=tuple((name, text.encode()) for name, text in options.header),
        partition=options.partition,
        null=None if options.null is None else options.null.encode(),
        is_repartitioned=options.repartition,
    )
    if wants_json(options):
        return json_parser(defaults)
    separator = options.key_separator
    return plain_parser(defaults, None if separator is None else separator.encode())


class _Pace:
    """At most so many records a second, evenly."""

    def __init__(self, session: Session, rate: int | None) -> None:
        self._clock = session.clock
        self._gap_s = 0.0 if rate is None else 1 / rate
        self._next = session.clock.monotonic()

    async def wait(self) -> None:
        if self._gap_s:
            now = self._clock.monotonic()
            if now < self._next:
                await self._clock.sleep(self._next - now)
            self._next = max(self._next, now - 1.0) + self._gap_s  # what was missed is not made up for
