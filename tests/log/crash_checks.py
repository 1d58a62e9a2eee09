"""A partition read back after a crash (or without one), held against its story in every way there is.

Look-ups by offset, time and epoch, the producers' state and what readers of committed data see are compared
with what a walk over all batches of the story gives; then the log must go on: recognise the batches it has,
take new ones, close cleanly and open again.
"""

from __future__ import annotations

from barnabas.core.random import Random
from barnabas.log import reading
from barnabas.log.partition import Bound, PartitionLog
from barnabas.log.producer import NO_COORDINATOR_EPOCH, NO_OFFSET, ProducerEntry
from barnabas.log.producers import Origin
from barnabas.records.batch import NO_SEQUENCE, BatchHeader
from barnabas.records.record import Record
from tests.log.crash_story import Found, Step, Story, Violation, split_batches
from tests.support.logs import batch, read_bytes, read_committed
from tests.support.producer_model import Log, Marker

# a read in many pieces and one in a single piece take different ways
_FEW_BYTES, _MANY_BYTES = 200, 1 << 20


async def find(log: PartitionLog, max_bytes: int = _MANY_BYTES) -> Found:
    """Everything there is, from the start to the end of the log."""
    batches = []
    offset = log.start_offset
    while data := await read_bytes(log, offset, max_bytes, Bound.LOG_END):
        batches += split_batches(data)
        offset = batches[-1].next_offset
    return Found(log.start_offset, log.end_offset, batches)


async def examine(log: PartitionLog, story: Story, random: Random) -> None:
    """Hold every answer of the log against its story; a Violation where they differ.

    The high watermark is at the end of the log afterwards.
    """
    _check_bounds(log)
    await _check_offsets(log, story, random)
    await _check_times(log, story, random)
    _check_epochs(log, story)
    _check_producers(log, story)
    await _check_transactions(log, story)


def _require(is_right: bool, what: str) -> None:
    if not is_right:
        raise Violation(what)


def _check_bounds(log: PartitionLog) -> None:
    order = [log.start_offset, log.last_stable_offset, log.high_watermark, log.end_offset]
    _require(order == sorted(order), f"start, last stable offset, high watermark, end: {order}")
    _require(log.recovery_point <= log.end_offset, f"recovery point {log.recovery_point} beyond the end")


async def _check_offsets(log: PartitionLog, story: Story, random: Random) -> None:
    """Reads from a few offsets: whole batches, from the one that holds the offset, at least one."""
    for _ in range(2):
        length = story.end_offset - story.start_offset
        offset = story.start_offset + random.below(length + 1)
        max_bytes = random.below(600)
        await check_read(log, story, offset, max_bytes, story.end_offset, Bound.LOG_END)


async def check_read(
    log: PartitionLog, story: Story, offset: int, max_bytes: int, upper: int, bound: Bound
) -> None:
    """One read, bounded by `max_bytes` and by the offset `upper` that `bound` stands for."""
    expected = b""
    for stored in story.between(offset, upper):
        is_too_much = expected and len(expected) + len(stored.data) > max_bytes
        if is_too_much or stored.next_offset > upper:
            break
        expected += stored.data
    data = await read_bytes(log, offset, max_bytes, bound)
    what = f"a read of {max_bytes} bytes from {offset} to {upper} gives {split_batches(data)}"
    _require(bool(data) == bool(expected) and expected.startswith(data), what)
    if len(data) < len(expected):
        # it ends with its segment, and nowhere else
        _require(split_batches(data)[-1].next_offset in log.bases, what)


async def _check_times(log: PartitionLog, story: Story, random: Random) -> None:
    records = story.records()
    await check_newest(log, records)
    for _ in range(min(3, len(records))):
        timestamp = records[random.below(len(records))][0].timestamp + random.below(3) - 1
        await check_time(log, records, timestamp)


async def check_time(log: PartitionLog, records: list[tuple[Record, int]], timestamp: int) -> None:
    """The first record at or after a time."""
    expected = next((found for found in records if found[0].timestamp >= timestamp), None)
    _same_record(await reading.offset_for_timestamp(log, timestamp), expected, f"for time {timestamp}")


async def check_newest(log: PartitionLog, records: list[tuple[Record, int]]) -> None:
    """The first record that has the largest timestamp."""
    newest = max((found for found in records), key=lambda found: found[0].timestamp, default=None)
    answer = await reading.offset_for_timestamp(log, reading.MAX_TIMESTAMP)
    _same_record(answer, newest, "for the newest record")


def _same_record(answer: reading.TimestampOffset, expected: tuple[Record, int] | None, what: str) -> None:
    right = reading.NOTHING
    if expected is not None:
        record, epoch = expected
        right = reading.TimestampOffset(record.timestamp, record.offset, epoch)
    _require(answer == right, f"{what} the log answers {answer}, not {right}")


def _check_epochs(log: PartitionLog, story: Story) -> None:
    entries = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
    expected = story.epochs()
    # an epoch of which no record is left may still be known
    while entries and entries[-1][1] >= story.end_offset:
        entries.pop()
    # and an epoch may begin, or even end, in the gap that a compaction left before the first batch
    while expected and len(entries) > 1 and entries[1][1] <= expected[0][1]:
        entries.pop(0)
    if entries and expected and story.start_offset <= entries[0][1] < expected[0][1]:
        entries[0] = (entries[0][0], expected[0][1])
    _require(entries == expected, f"the epochs are {entries}, those of the batches {expected}")
    for index, (epoch, _) in enumerate(expected):
        ends_at = expected[index + 1][1] if index + 1 < len(expected) else story.end_offset
        answer = reading.end_offset_for_epoch(log, epoch)
        _require(
            answer == (epoch, ends_at),
            f"epoch {epoch} ends at {ends_at}, the log says {answer}",
        )


def producer_entries(model: Log) -> dict[int, ProducerEntry]:
    """What a snapshot of the model would hold."""
    entries = {}
    open_at = {txn.producer_id: txn.first_offset for txn in model.transactions() if txn.marker is None}
    for producer_id in {item.producer_id for item in model.items}:
        items = model.of(producer_id)
        window = model.window(producer_id)
        markers = [item for item in items if isinstance(item, Marker)]
        last = items[-1]
        entries[producer_id] = ProducerEntry(
            producer_id,
            model.epoch(producer_id) or 0,
            window[-1].last_sequence if window else NO_SEQUENCE,
            window[-1].last_offset if window else NO_OFFSET,
            window[-1].last_offset_delta if window else 0,
            last.timestamp if isinstance(last, Marker) else last.max_timestamp,
            markers[-1].coordinator_epoch if markers else NO_COORDINATOR_EPOCH,
            open_at.get(producer_id, NO_OFFSET),
        )
    return entries


def _check_producers(log: PartitionLog, story: Story) -> None:
    """The state is that of all batches ever; or, where a power failure took the snapshots, of those left."""
    found = {entry.producer_id: entry for entry in log.producers.entries()}
    expected = producer_entries(story.producers())
    if found != expected and story.may_have_forgotten:
        expected = producer_entries(story.producers(log.bases[0]))
        story.batches = [stored for stored in story.batches if stored.base_offset >= log.bases[0]]
    _require(found == expected, f"the producers are {found}, by the batches {expected}")
    model = story.producers(log.bases[0])
    for producer_id, entry in found.items():
        for header in model.window(producer_id):
            if header.producer_epoch == entry.epoch:
                _check_duplicate(log, header)


def _check_duplicate(log: PartitionLog, header: BatchHeader) -> None:
    duplicate = log.producers.check(header, origin=Origin.CLIENT)
    _require(
        duplicate is not None and duplicate.first_offset == header.base_offset,
        f"sent again, {header} is answered with {duplicate}",
    )


async def _check_transactions(log: PartitionLog, story: Story) -> None:
    model = story.producers()
    # a restart forgets which markers the high watermark has not passed yet
    low = last_stable_offset(model, log.high_watermark, log.start_offset)
    high = min(log.high_watermark, last_stable_offset(model, log.end_offset, log.start_offset))
    _require(
        low <= log.last_stable_offset <= high,
        f"last stable offset {log.last_stable_offset}, not from {low} to {high}, at {log.high_watermark}",
    )
    log.advance_high_watermark(log.end_offset)
    stable = last_stable_offset(model, log.end_offset, log.start_offset)
    _require(log.last_stable_offset == stable, f"last stable offset {log.last_stable_offset}, not {stable}")
    visible = committed(story, stable)
    for max_bytes in (_FEW_BYTES, _MANY_BYTES):
        records = await read_committed(log, max_bytes=max_bytes)
        _require(records == visible, f"{records} are read as committed, not {visible}")


def last_stable_offset(model: Log, high_watermark: int, start_offset: int) -> int:
    unstable = model.first_unstable_offset(high_watermark)
    stable = high_watermark if unstable is None else min(unstable, high_watermark)
    return max(stable, start_offset)


def committed(story: Story, upper: int) -> list[Record]:
    """The records below `upper` that no aborted transaction wrote."""
    aborted = [
        txn for txn in story.producers().transactions() if txn.marker is not None and not txn.marker.commit
    ]

    def is_aborted(header: BatchHeader) -> bool:
        return header.is_transactional and any(
            txn.producer_id == header.producer_id
            and txn.first_offset <= header.base_offset
            and txn.marker is not None
            and header.base_offset < txn.marker.offset
            for txn in aborted
        )

    return [
        record
        for stored in story.between(story.start_offset, upper)
        if stored.next_offset <= upper and not stored.header.is_control and not is_aborted(stored.header)
        for record in stored.records
        if record.offset >= story.start_offset
    ]


async def go_on(log: PartitionLog, story: Story) -> None:
    """The log takes more: the next batch gets the next offset, can be read, and can be made durable."""
    latest = log.epochs.latest_epoch
    data = batch(2)
    story.begin(Step.APPEND, data=data)
    appended = await log.append_as_leader(data, 0 if latest is None else latest + 1)
    _require(appended.first_offset == story.end_offset, f"{appended} follows {story.end_offset}")
    story.done()
    _require(await read_bytes(log, appended.first_offset) == bytes(data), "the next batch cannot be read")
    await log.flush()
    story.was_synced()
