"""`barnabas topic`: the topics of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from barnabas.cli.connecting import Session, connected
from barnabas.cli.options import Actions, command_parser
from barnabas.cli.running import run_command


def main(arguments: Sequence[str]) -> int:
    """Do one thing to topics; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("barnabas topic", "The topics of a cluster.", "barnabas topic list")
    actions = Actions(parser)
    actions.add("list", "list topics", "barnabas topic list", connected(_list))
    return parser


async def _list(session: Session, options: argparse.Namespace) -> None:
    topics = await session.admin.describe_topics()
    session.output.table(("name", "partitions"), [(t.name, len(t.partitions)) for t in topics.values()])
