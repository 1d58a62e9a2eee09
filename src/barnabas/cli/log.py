"""`barnabas log dump`: what stands in the files of a partition, with or without a node running on them.

It reads and changes nothing. Names of facts and their values are those of Kafka's own DumpLogSegments, in
our spelling. Exit status 1 where something is wrong with a file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from barnabas.cli.dump.contents import Item, Wanted, files_of, items_of
from barnabas.cli.dump.facts import Facts
from barnabas.cli.failures import FAILED, OK, CommandFailed
from barnabas.cli.options import Actions, command_parser, wants_json
from barnabas.cli.output import Output, bytes_text, counted
from barnabas.cli.payload import one_line
from barnabas.cli.records.progress import Progress
from barnabas.cli.running import run_command
from barnabas.cli.times import time_text
from barnabas.core.clock import SystemClock
from barnabas.metadata.names import CLUSTER_METADATA, CONSUMER_OFFSETS, TRANSACTION_STATE

_EXAMPLES = """
barnabas log dump data/orders-0                          every file of a partition
barnabas log dump data/orders-0/*.log --records          the records, too
barnabas log dump data/orders-0 --verify                 checksums, records, indexes against the log
barnabas log dump data/__cluster_metadata-0 --records    the metadata log, decoded; offsets, transactions too
barnabas log dump data --verify --quiet                  a whole directory: only what is wrong
"""


_TOPICS = {
    "metadata": CLUSTER_METADATA,
    "offsets": CONSUMER_OFFSETS,
    "transactions": TRANSACTION_STATE,
    "none": "",
}


def main(arguments: Sequence[str]) -> int:
    """Look into files; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("barnabas log", "The files of a partition.", _EXAMPLES, is_connected=False)
    dump = Actions(parser, is_connected=False).add(
        "dump", "print what stands in files: segments, indexes, snapshots, checkpoints", _EXAMPLES, _dump
    )
    dump.add_argument(
        "paths", metavar="PATH", nargs="+", help="a file, a partition's directory, or a log directory"
    )
    dump.add_argument("--records", action="store_true", help="print the records of the batches, too")
    dump.add_argument(
        "--verify", action="store_true", help="check checksums, records, and indexes against the log"
    )
    dump.add_argument(
        "--decode",
        choices=_TOPICS,
        help="what the records are, where the path does not tell; none leaves them as they are",
    )
    dump.add_argument("--quiet", action="store_true", help="print only what is wrong, and totals")
    return parser


def _dump(options: argparse.Namespace) -> int:
    try:
        return _show_files(options)
    except OSError as error:
        if error.filename is None:  # of standard output
            raise
        raise CommandFailed(
            f"cannot read {error.filename}: {error.strerror}", "look as the user that runs the node"
        ) from error


def _show_files(options: argparse.Namespace) -> int:
    wanted = Wanted(options.records, options.verify, _TOPICS.get(options.decode))
    progress = Progress(SystemClock(), total=_size(options.paths), is_shown=options.quiet)
    printer = _Printer(as_json=wants_json(options), is_quiet=options.quiet)
    try:
        _show_all(options.paths, wanted, printer, progress)
    finally:
        progress.end()
    printer.end(verified=options.verify)
    return FAILED if printer.problems else OK


def _size(names: Sequence[str]) -> int:
    """How many bytes there are to read, about: a node may be running."""
    return sum(file.stat().st_size for name in names for file in files_of(Path(name)) if file.exists())


def _show_all(names: Sequence[str], wanted: Wanted, printer: _Printer, progress: Progress) -> None:
    for name in names:
        path = Path(name)
        if not path.exists():
            raise CommandFailed(
                f"there is no {path}", "name a file, a partition's directory or a log directory"
            )
        for file in files_of(path):
            try:
                for item in items_of(file, wanted):
                    printer.show(file, item)
                    if item.kind == "file":
                        progress.done += item.facts["size"]
                    elif item.kind == "total":
                        progress.add(item.facts["records"], item.facts["valid_bytes"])
            except FileNotFoundError:  # a node that runs here has just removed it
                printer.show(file, Item("gone", {"gone": "removed while it was to be read"}))


class _Printer:
    """Items as lines for people, or as one JSON object each."""

    def __init__(self, *, as_json: bool, is_quiet: bool) -> None:
        self.problems = 0
        self._files = 0
        self._output = Output(as_json=as_json)
        self._is_quiet = is_quiet
        self._heading: str | None = None

    def show(self, path: Path, item: Item) -> None:
        self.problems += item.kind == "problem"
        self._files += item.kind == "file"
        if self._is_quiet and item.kind not in ("file", "problem"):
            return
        if self._output.as_json:
            if item.kind == "problem" or not self._is_quiet:
                facts = {"kind": item.kind, "file": str(path), **item.facts}
                sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
            return
        line = _LINES[item.kind](item.facts)
        if item.kind == "file" and self._is_quiet:
            self._heading = line
            return
        if self._heading is not None:
            self._output.say(self._heading)
            self._heading = None
        self._output.say(line)

    def end(self, *, verified: bool) -> None:
        if self._output.as_json:
            return
        how = "checked" if verified else "read"
        found = counted(self.problems, "problem") if self.problems else "nothing wrong"
        if self._files > 1 or verified:
            self._output.say(f"{counted(self._files, 'file')} {how}: {found}")


# ---- a line for each kind --------------------------------------------------------------------------------


def _file_line(facts: Facts) -> str:
    return f"{facts['file']}: {facts['type'] or 'unknown'}, {bytes_text(facts['size'])}"


def _batch_line(facts: Facts) -> str:
    parts = [
        f"  {facts['base_offset']}-{facts['last_offset']}: {counted(facts['count'], 'record')}",
        f"at byte {facts['position']}",
        f"{facts['size']} bytes",
        facts["codec"] if facts["codec"] != "none" else "not compressed",
        f"{facts['timestamp_type']} {time_text(facts['max_timestamp'])}",
        f"leader epoch {facts['leader_epoch']}",
    ]
    if facts["producer_id"] >= 0:
        parts.append(f"producer {facts['producer_id']} epoch {facts['producer_epoch']}")
    if facts["base_sequence"] >= 0:
        parts.append(f"sequence {facts['base_sequence']}-{facts['last_sequence']}")
    parts += [
        word
        for word, name in (("transactional", "is_transactional"), ("control", "is_control"))
        if facts[name]
    ]
    if "delete_horizon_ms" in facts:
        parts.append(f"delete horizon {time_text(facts['delete_horizon_ms'])}")
    if "is_valid" in facts:
        parts.append(f"crc {facts['crc']:#010x} {'ok' if facts['is_valid'] else 'BAD'}")
    return ", ".join(parts)


def _record_line(facts: Facts) -> str:
    line = f"    {facts['offset']}  {time_text(facts['timestamp'])}"
    if facts["headers"]:
        line += "  " + " ".join(_pair(one_line(each["key"]), each) for each in facts["headers"])
    if "control_type" in facts:
        epoch = facts.get("coordinator_epoch")
        line += f"  {facts['control_type']}" + (f", coordinator epoch {epoch}" if epoch is not None else "")
        return line + (f"  {_compact(facts['data'])}" if "data" in facts else "")
    if "type" in facts:
        line += f"  {facts['type']}" + (f" v{facts['version']}" if "version" in facts else "")
        line += f"  {_compact(facts['key'])}" if "key" in facts else ""
        return f"{line}  {'deleted' if facts['data'] is None else _compact(facts['data'])}"
    line += f"  {_pair('key', facts, 'key')}  {_pair('value', facts)}"
    return line + (f"  ({facts['not_decoded']})" if "not_decoded" in facts else "")


def _pair(label: str, facts: Facts, name: str = "value") -> str:
    if f"{name}_base64" in facts:
        return f"{label}=base64:{facts[f'{name}_base64']}"
    value = facts[name]
    return f"{label}={'null' if value is None else one_line(value)}"


def _compact(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False)


def _entry_line(facts: Facts) -> str:
    parts = []
    for name, value in facts.items():
        is_time = name in ("timestamp", "last_timestamp") and isinstance(value, int)
        parts.append(f"{name.replace('_', ' ')} {time_text(value) if is_time else value}")
    return "  " + ", ".join(parts)


def _total_line(facts: Facts) -> str:
    if not facts["batches"]:
        text = "  no batches"
    else:
        text = (
            f"  {counted(facts['batches'], 'batch')}, {counted(facts['records'], 'record')}, "
            f"offsets {facts['first_offset']} to {facts['last_offset']}"
        )
    return text + (f", then {facts['tail_bytes']} bytes that are no batch" if "tail_bytes" in facts else "")


_LINES: dict[str, Callable[[Facts], str]] = {
    "file": _file_line,
    "batch": _batch_line,
    "record": _record_line,
    "entry": _entry_line,
    "total": _total_line,
    "problem": lambda facts: f"  ! {facts['problem']}",
    "gone": lambda facts: f"  {facts['gone']}",
}
