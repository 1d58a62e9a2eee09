"""`barnabas doctor`: looks at this machine, at directories, at settings, at a cluster, and says what to do.

Nothing is changed, unless `--write` asks for a round trip through the cluster. Exit status 1 where there is a
problem; warnings alone are no failure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from barnabas.cli.checks.directory import check_directory
from barnabas.cli.checks.findings import Finding, Level, Section
from barnabas.cli.checks.machine import check_machine
from barnabas.cli.checks.settings_file import check_settings_file
from barnabas.cli.dump.segments import Survey
from barnabas.cli.failures import FAILED, OK
from barnabas.cli.options import command_parser, wants_json
from barnabas.cli.output import Output, counted
from barnabas.cli.records.progress import Progress
from barnabas.cli.running import run_command
from barnabas.core.clock import SystemClock
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.log.names import LOG

_EXAMPLES = """
barnabas doctor                                    this machine
barnabas doctor --dir /var/lib/kafka               a log directory, of Barnabas or of Apache Kafka
barnabas doctor --dir /var/lib/kafka --verify      the same, reading every byte
barnabas doctor --config server.properties         settings, and the directories they name
barnabas doctor --bootstrap localhost:9092         a running cluster, of whatever kind
barnabas doctor --bootstrap localhost:9092 --write with a record written and read back
"""
_COLOURS = {Level.OK: "\x1b[32m", Level.WARNING: "\x1b[33m", Level.PROBLEM: "\x1b[31m"}
_WIDTH = max(len(level) for level in Level)


def main(arguments: Sequence[str]) -> int:
    """Look, and tell; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "barnabas doctor",
        "Check this machine and, if named, directories, settings and a cluster; say what to do.",
        _EXAMPLES,
    )
    parser.add_argument(
        "--dir",
        metavar="D",
        action="append",
        default=[],
        dest="directories",
        help="a log directory; may be repeated",
    )
    parser.add_argument(
        "--verify", action="store_true", help="with --dir: read every byte of every segment, and the indexes"
    )
    parser.add_argument("--config", metavar="F", help="a file of settings (server.properties)")
    parser.add_argument(
        "--write",
        action="store_true",
        help="with --bootstrap: write and read a record, in a topic of its own",
    )
    parser.set_defaults(run=_run)
    return parser


def _run(options: argparse.Namespace) -> int:
    sections = [check_machine()]
    directories = [Path(each) for each in options.directories]
    node_id: int | None = None
    if options.config is not None:
        checked = check_settings_file(Path(options.config))
        sections.append(checked.section)
        if checked.settings is not None:
            node_id = checked.settings.node_id
            directories += _named(checked.settings)
    sections += _directories(list(dict.fromkeys(directories)), options, node_id)
    if getattr(options, "bootstrap", None) or options.write:
        sections.append(_cluster(options))
    _tell(sections, as_json=wants_json(options))
    return FAILED if _count(sections, Level.PROBLEM) else OK


def _named(settings: BrokerSettings) -> list[Path]:
    """The directories that settings name, as far as they are there: a node makes those that are not."""
    metadata = settings.string("metadata.log.dir")
    named = (*settings.log_dirs, *([metadata] if metadata else []))
    return [path for each in named if not _is_missing(path := Path(each))]


def _is_missing(path: Path) -> bool:
    """Whether it is certainly not there; what may not be looked at is told of when it is checked."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _directories(paths: list[Path], options: argparse.Namespace, node_id: int | None) -> list[Section]:
    """Look at directories, with a bar at a terminal where that takes long."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):  # it is only for the bar: what is wrong is told below
            total += sum(file.stat().st_size for file in path.glob(f"*/*{LOG}"))
    progress = Progress(SystemClock(), total=total, is_shown=options.verify)

    def surveyed(segment: Survey) -> None:
        progress.done += segment.valid_bytes
        progress.add(segment.records, segment.valid_bytes)

    try:
        return [
            section
            for path in paths
            for section in check_directory(path, verify=options.verify, node_id=node_id, surveyed=surveyed)
        ]
    finally:
        progress.end()


def _cluster(options: argparse.Namespace) -> Section:
    # imported here: the client is not needed to look at files
    from barnabas.cli.checks.cluster import check_cluster
    from barnabas.cli.connecting import Session
    from barnabas.core.event_loop import new_event_loop

    async def check() -> Section:
        session = Session(options)
        try:
            return await check_cluster(session, write=options.write)
        finally:
            await session.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(check())


# ---- telling ---------------------------------------------------------------------------------------------


def _count(sections: Sequence[Section], level: Level) -> int:
    return sum(finding.level is level for section in sections for finding in section.findings)


def _tell(sections: Sequence[Section], *, as_json: bool) -> None:
    output = Output(as_json=as_json)
    problems, warnings = _count(sections, Level.PROBLEM), _count(sections, Level.WARNING)
    if as_json:
        findings = [
            {
                "subject": section.subject,
                "level": finding.level,
                "what": finding.what,
                "next": finding.next_step,
            }
            for section in sections
            for finding in section.findings
        ]
        output.document({"problems": problems, "warnings": warnings, "findings": findings})
        return
    for section in sections:
        output.say(section.subject)
        for finding in section.findings:
            output.say(_line(finding, is_coloured=sys.stdout.isatty()))
        output.say()
    output.say(_summary(problems, warnings))


def _line(finding: Finding, *, is_coloured: bool) -> str:
    level = f"{finding.level:<{_WIDTH}}"
    if is_coloured:
        level = f"{_COLOURS[finding.level]}{level}\x1b[0m"
    lines = [f"  {level}  {finding.what}"]
    if finding.next_step is not None:
        lines.append(f"  {'':<{_WIDTH}}  -> {finding.next_step}")
    return "\n".join(lines)


def _summary(problems: int, warnings: int) -> str:
    if not problems and not warnings:
        return "nothing wrong"
    counts = [(problems, "problem"), (warnings, "warning")]
    return ", ".join(counted(count, what) for count, what in counts if count)
