"""A mutation fuzzer: sound batches, damaged; whatever reads them must succeed or raise a named error.

    python -m tests.records.fuzz --count 200000 [--seed 1]

Half of the damaged batches get a fresh checksum, so that the damage reaches what the checksum guards. The
kernel under test is the one in use (BARNABAS_KERNEL). One seed gives the same batches every time, and a
failure prints the number of the batch that caused it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

from barnabas.core.errors import BarnabasError
from barnabas.records import kernel
from barnabas.records.batch import CODEC_MASK, HEADER_BYTES
from barnabas.records.builder import build_batch
from barnabas.records.columnar import Encoder, decode
from barnabas.records.control import ControlType, build_end_transaction, parse_end_transaction
from barnabas.records.reader import read_records, records_section
from barnabas.records.record import Record
from barnabas.records.validate import RecordPolicy, validate_batch
from tests.support.batches import renew_crc

NOW_MS = 1_700_000_000_000
FIELD_AT = (0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57)
BYTES = (0, 1, 2, 127, 128, 254, 255)


def sound_batch(random: Random) -> bytearray:
    """A batch as some client or broker could have made it."""
    if random.random() < 0.05:
        kind = random.choice((ControlType.ABORT, ControlType.COMMIT))
        return build_end_transaction(
            kind, producer_id=7, producer_epoch=0, coordinator_epoch=random.randrange(9), timestamp=NOW_MS
        )
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0} if random.random() < 0.3 else {}
    return build_batch(
        [sound_record(random) for _ in range(random.randrange(1, 9))],
        codec=random.choice((0, 0, 0, 1, 2, 3, 4)),
        append_time_ms=NOW_MS if random.random() < 0.1 else None,
        delete_horizon_ms=NOW_MS if random.random() < 0.1 else None,
        transactional=bool(producer) and random.random() < 0.5,
        **producer,
    )


def sound_record(random: Random) -> Record:
    def field() -> bytes | None:
        return None if random.random() < 0.2 else random.randbytes(random.choice((0, 1, 5, 30, 200)))

    headers = tuple(("h" * random.randrange(4), field()) for _ in range(random.choice((0, 0, 0, 1, 3))))
    return Record(0, NOW_MS + random.randrange(-50, 50), field(), field(), headers)


def mutate(batch: bytearray, random: Random) -> bytearray:
    """Damage a batch in one to three places."""
    for _ in range(random.randrange(1, 4)):
        if not batch:
            break
        at = random.randrange(len(batch))
        match random.randrange(8):
            case 0 | 1 | 2:
                batch[at] ^= 1 << random.randrange(8)
            case 3:
                batch[at] = random.choice(BYTES)
            case 4:
                at = random.choice(FIELD_AT)
                batch[at : at + 4] = random.choice((random.randbytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff"))
            case 5:
                del batch[at:]
            case 6:
                del batch[at : at + random.randrange(1, 9)]
            case _:
                batch[at:at] = random.randbytes(random.randrange(1, 9))
    if len(batch) > HEADER_BYTES and random.random() < 0.5:
        if random.random() < 0.8:
            batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        renew_crc(batch)
    return batch


def mutants(seed: int, count: int) -> Iterator[bytearray]:
    """`count` damaged batches, the same for the same seed."""
    random = Random(seed)
    for _ in range(count):
        yield mutate(sound_batch(random), random)


def _policy(batch: bytearray) -> RecordPolicy:
    """One of several, chosen by the bytes themselves so that it can be repeated."""
    choice = sum(batch[:80]) % 4
    return RecordPolicy(
        require_keys=bool(choice & 1),
        earliest_ms=NOW_MS - 20 if choice & 2 else -(1 << 63),
        open_compressed=choice != 3,
    )


def _decode_and_encode(batch: bytearray) -> None:
    columns = decode(batch, control=True)
    if columns.rows:
        Encoder(columns).batch()


def _hash_keys(batch: bytearray) -> None:
    header = kernel.check_batch(batch, 0, len(batch))
    if not header.attributes & CODEC_MASK:
        kernel.key_hashes(batch, HEADER_BYTES, header.size_bytes, header, bytes(16))


def _compact(batch: bytearray) -> None:
    offsets = kernel.OffsetMap(2400, bytes(16))
    keep = kernel.BatchFilter(offsets, b"", 3, NOW_MS, 1)
    _, header, _ = offsets.note(batch, 0, len(batch), 0, 90)
    keep.run(batch, 0, len(batch))
    if header is not None:
        section = records_section(batch, 0, header)
        offsets.note_section(*section, header, 0, 90)
        keep.batch(batch, 0, header, *section, wants_horizon=header.is_control)


READERS: tuple[Callable[[bytearray], object], ...] = (
    lambda batch: kernel.scan(batch, 0, len(batch), True),
    lambda batch: kernel.scan(batch, 0, len(batch), False),
    lambda batch: kernel.scan_headers(batch, 0, len(batch)),
    lambda batch: validate_batch(bytearray(batch), _policy(batch)),
    lambda batch: kernel.admit(bytearray(batch), 5, 1, True, 0, 1 << 62),
    lambda batch: list(read_records(batch, control=True)),
    _decode_and_encode,
    _hash_keys,
    _compact,
    parse_end_transaction,
)


def outcome(reader: Callable[[bytearray], object], batch: bytearray) -> str:
    """ "read", or the name of the error; anything that is not ours comes through."""
    try:
        reader(batch)
    except BarnabasError as error:
        return type(error).__name__
    return "read"


def run(seed: int, count: int) -> Counter[str]:
    """Every mutant through every reader; how often each outcome came."""
    outcomes: Counter[str] = Counter()
    for number, batch in enumerate(mutants(seed, count)):
        before = bytes(batch)
        for reader in READERS:
            try:
                outcomes[outcome(reader, batch)] += 1
            except Exception as error:
                error.add_note(f"mutant {number} of seed {seed}: {before.hex()}")
                raise
            if batch != before:
                raise AssertionError(
                    f"mutant {number} of seed {seed} was changed by a reader: {before.hex()}"
                )
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.records.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    outcomes = run(options.seed, options.count)
    seconds = time.monotonic() - started
    print(f"{options.count:,} mutated batches, kernel {kernel.NAME}, {seconds:.0f} s: no unnamed error")
    for name, times in outcomes.most_common():
        print(f"  {times:>10,}  {name}")


if __name__ == "__main__":
    main()
