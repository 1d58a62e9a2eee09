"""`barnabas format`: the directories of a node made ready for a cluster of several.

It writes what `kafka-storage format` writes. All nodes get the same cluster id and the same voters. A cluster
of one does not need it: `barnabas serve` formats an empty directory by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from functools import partial

from barnabas.broker.storage.format_node import FormattedDirectory, format_node
from barnabas.broker.storage.initial_voters import choose_voters, parse_voters
from barnabas.broker.storage.server_properties import properties_of
from barnabas.broker.storage.storage import read_layout
from barnabas.cli.node_settings import add_settings, load_settings
from barnabas.cli.options import INT16, command_parser, natural, setting
from barnabas.cli.output import Output
from barnabas.cli.running import run_command
from barnabas.controller.bootstrap import KRAFT_FEATURE
from barnabas.controller.initial_features import initial_kraft_version, initial_levels
from barnabas.core.clock import SystemClock
from barnabas.core.os_disk import OsDisk
from barnabas.core.random import Random, SystemRandom, random_id
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.listeners import read_listeners
from barnabas.core.settings.relations import read_voters
from barnabas.core.workers import InlineWorkers
from barnabas.log.checkpoints import uuid_to_text

_EXAMPLES = """
barnabas format --random-cluster-id
barnabas format --config server.properties --cluster-id MkU3OEVBNTcwNTJENDM2Qg --standalone
barnabas format --config server.properties --cluster-id MkU3OEVBNTcwNTJENDM2Qg \\
    --initial-controllers 1@c1:9093:JEXY6aqzQY-32P5TStzaFg,2@c2:9093:MvDxzVmcRsaTz33bUuRU6A
barnabas format --config broker.properties --cluster-id MkU3OEVBNTcwNTJENDM2Qg --feature group.version=1
"""


def main(arguments: Sequence[str]) -> int:
    """Format, or print a new id; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "barnabas format",
        "Make the directories of a node ready for a cluster of several nodes, as kafka-storage format does.",
        _EXAMPLES,
        is_connected=False,
    )
    parser.set_defaults(run=_format, prog=parser.prog)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cluster-id", metavar="ID", help="the id of the cluster, the same for all its nodes")
    for name in ("--random-cluster-id", "--random-uuid"):
        what.add_argument(
            name, action="store_true", dest="random", help="print a new id, of a cluster or of a directory"
        )
    add_settings(parser)
    voters = parser.add_mutually_exclusive_group()
    voters.add_argument("--standalone", action="store_true", help="this controller is the only voter")
    voters.add_argument(
        "--initial-controllers",
        metavar="VOTERS",
        help="the voters, as id@host:port:directory-id,...; the same for all nodes",
    )
    voters.add_argument(
        "--no-initial-controllers", action="store_true", help="it joins a quorum that there is already"
    )
    parser.add_argument("--release-version", metavar="V", help="begin with the features of a release: 4.3")
    parser.add_argument(
        "--feature",
        metavar="NAME=LEVEL",
        type=_feature,
        action="append",
        default=[],
        help="begin with another level of a feature; may be repeated",
    )
    parser.add_argument(
        "--ignore-formatted",
        action="store_true",
        help="leave directories alone that are formatted, and format the others",
    )
    return parser


def _feature(text: str) -> tuple[str, int]:
    name, level = setting(text)
    return name, natural(level.strip(), INT16)


def _format(options: argparse.Namespace) -> None:
    random, output = SystemRandom(), Output(as_json=getattr(options, "json", False))
    if options.random:
        text = uuid_to_text(random_id(random))
        output.done({"id": text}, text)
        return
    settings = load_settings(options)
    formatted = asyncio.run(_format_node(settings, options, random))
    _tell(output, settings.node_id, options.cluster_id, formatted)


async def _format_node(
    settings: BrokerSettings, options: argparse.Namespace, random: Random
) -> list[FormattedDirectory]:
    listeners, clock, workers = read_listeners(settings), SystemClock(), InlineWorkers()
    given = dict(options.feature)
    levels = initial_levels(options.release_version, given)
    initial_kraft_version(given.get(KRAFT_FEATURE), is_dynamic=not read_voters(settings))
    initial = options.initial_controllers
    voters = choose_voters(
        settings,
        listeners,
        standalone=options.standalone,
        initial=None if initial is None else parse_voters(initial),
        no_initial=options.no_initial_controllers,
        random=random,
    )
    return await format_node(
        read_layout(settings),
        lambda path: OsDisk(path, workers, clock),
        node_id=settings.node_id,
        cluster_id=options.cluster_id,
        levels=levels,
        voters=voters,
        listener=settings.strings("controller.listener.names")[0].upper(),
        clock=clock,
        random=random,
        ignore_formatted=options.ignore_formatted,
        # those who have a file of their own need no other
        properties=None if options.config else partial(properties_of, settings, listeners),
    )


def _tell(output: Output, node_id: int, cluster_id: str, formatted: list[FormattedDirectory]) -> None:
    if output.as_json:
        output.document(
            {
                "cluster_id": cluster_id,
                "node_id": node_id,
                "directories": [
                    {
                        "directory": os.path.abspath(each.where),
                        "id": uuid_to_text(each.directory_id),
                        "metadata": each.holds_metadata,
                        "formatted": each.is_new,
                    }
                    for each in formatted
                ],
            }
        )
        return
    for each in formatted:
        kind = "metadata and data" if each.holds_metadata else "data"
        was = "formatted" if each.is_new else "formatted before"
        output.say(f"{each.where} {was}: {kind} of node {node_id}, cluster {cluster_id}")
