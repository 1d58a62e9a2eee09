"""`barnabas serve`: one node in this process, until it is told to stop.

Settings come from flags over `KAFKA_*` variables over a file over defaults, by Kafka's own names. SIGTERM and
SIGINT stop the node cleanly. Exit status: 0 after a clean stop, 1 where it cannot start or had to give up,
2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from barnabas import __version__
from barnabas.broker.node import Node
from barnabas.core.clock import SystemClock
from barnabas.core.descriptors import raise_open_file_limit
from barnabas.core.errors import BarnabasError
from barnabas.core.event_loop import new_event_loop
from barnabas.core.os_disk import OsDisk
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.listeners import listen_flags
from barnabas.core.settings.properties import parse_properties
from barnabas.core.settings.sources import resolve
from barnabas.core.workers import ThreadWorkers

logger = logging.getLogger("barnabas.serve")

_EXAMPLES = """examples:
  barnabas serve                                        127.0.0.1:9092, data in ./barnabas-data
  barnabas serve --dir /var/lib/barnabas --listen 0.0.0.0:9092
  barnabas serve --config server.properties --set log.retention.hours=24
"""


def main(arguments: Sequence[str]) -> int:
    """Serve until stopped; the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr
    )
    try:
        settings = load_settings(options)
        return _run(settings)
    except BarnabasError as error:
        sys.stderr.write(f"barnabas serve: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas serve",
        description="Run a node: a broker and a controller, a cluster of one.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dir", metavar="D", help="where the data is kept (default: ./barnabas-data)")
    parser.add_argument("--listen", metavar="H:P", help="where clients connect (default: 127.0.0.1:9092)")
    parser.add_argument(
        "--config", metavar="F", help="a file of settings by Kafka's names (server.properties)"
    )
    parser.add_argument(
        "--set",
        metavar="K=V",
        action="append",
        default=[],
        dest="settings",
        help="one setting; may be repeated",
    )
    parser.add_argument("--strict", action="store_true", help="refuse to start where a setting is not known")
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"), help="what to log"
    )
    return parser


def load_settings(options: argparse.Namespace) -> BrokerSettings:
    """The settings that a command line, the environment and a file come to."""
    flags: dict[str, str] = {}
    for text in options.settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidSetting(f"--set {text}: write it as name=value")
        flags[name.strip()] = value
    if options.dir is not None:
        flags["log.dirs"] = options.dir
    if options.listen is not None:
        flags |= listen_flags(options.listen)
    file: dict[str, str] | None = None
    if options.config is not None:
        try:
            file = parse_properties(Path(options.config).read_text(encoding="latin-1"))  # as Java reads it
        except OSError as error:
            raise InvalidSetting(f"cannot read --config {options.config}: {error.strerror}") from error
    return resolve(flags=flags, environment=os.environ, file=file, strict=options.strict)


def _run(settings: BrokerSettings) -> int:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: BrokerSettings) -> int:
    raise_open_file_limit()
    clock, workers = SystemClock(), ThreadWorkers()
    began = clock.monotonic()
    for warning in settings.warnings:
        logger.warning("%s", warning)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = await Node.start(
        settings,
        disk=lambda path: OsDisk(path, workers, clock),
        network=OsNetwork(workers),
        clock=clock,
        random=SystemRandom(),
        workers=workers,
        host_name=os.uname().nodename,
    )
    # what was made so far stays: the collector need not look at it again
    gc.collect()
    gc.freeze()
    logger.info(
        "Barnabas %s serves at %s: node %d, cluster %s, data in %s; ready after %.0f ms",
        __version__,
        ", ".join(node.endpoints),
        node.node_id,
        node.cluster_id,
        node.directory,
        (clock.monotonic() - began) * 1000,
    )
    failed = asyncio.create_task(node.failed())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        logger.critical("giving up: %s", failed.result())
        await node.abandon()
        status = 1
    else:
        logger.info("stopping")
        await node.stop()
        logger.info("stopped cleanly")
        status = 0
    for task in (failed, stopped):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    workers.close()
    return status
