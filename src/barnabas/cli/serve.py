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
from barnabas.cli.log_format import set_up_logging
from barnabas.core.clock import SystemClock
from barnabas.core.descriptors import raise_open_file_limit
from barnabas.core.errors import BarnabasError, InvariantViolation
from barnabas.core.event_loop import new_event_loop
from barnabas.core.os_disk import OsDisk
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.listeners import listen_advertised, listen_flags
from barnabas.core.settings.properties import parse_properties
from barnabas.core.settings.sources import BUILT_IN, resolve
from barnabas.core.workers import ThreadWorkers

logger = logging.getLogger("barnabas.serve")

_EXAMPLES = """examples:
  barnabas serve                                        127.0.0.1:9092, data in ./barnabas-data
  barnabas serve --dir /var/lib/barnabas --listen 0.0.0.0:9092
  barnabas serve --config server.properties --set log.retention.hours=24
  barnabas serve --metrics 127.0.0.1:9404               http://127.0.0.1:9404/metrics for Prometheus
"""


def main(arguments: Sequence[str]) -> int:
    """Serve until stopped; the exit status."""
    options = _parser().parse_args(arguments)
    log_format = options.log_format
    try:
        settings = load_settings(options)
        log_format = settings.string("barnabas.log.format")
        set_up_logging(log_format, options.log_level, os.environ)
        return _run(settings)
    except (BarnabasError, InvariantViolation) as error:
        if log_format == "json":
            set_up_logging(log_format, options.log_level, os.environ)
            logger.critical("%s", error)
        else:
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
        "--metrics", metavar="H:P", help="answer http://H:P/metrics, /health and /ready (default: not)"
    )
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), help="what to log (default: info)"
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), help="lines for people, or JSON (default: text)"
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
    built_in = BUILT_IN
    if options.listen is not None:
        flags |= listen_flags(options.listen)
        built_in = {**BUILT_IN, **listen_advertised(options.listen, os.uname().nodename)}
    if options.metrics is not None:
        flags["barnabas.metrics.listen"] = options.metrics
    if options.log_format is not None:
        flags["barnabas.log.format"] = options.log_format
    file: dict[str, str] | None = None
    if options.config is not None:
        try:
            file = parse_properties(Path(options.config).read_text(encoding="latin-1"))  # as Java reads it
        except OSError as error:
            raise InvalidSetting(f"cannot read --config {options.config}: {error.strerror}") from error
    return resolve(flags=flags, environment=os.environ, file=file, strict=options.strict, built_in=built_in)


def _run(settings: BrokerSettings) -> int:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(settings))


def _tell_ready(node: Node, ready_ms: float) -> None:
    logger.info(
        "Barnabas %s serves at %s: node %d, cluster %s, data in %s; ready after %.0f ms",
        __version__,
        ", ".join(node.endpoints),
        node.node_id,
        node.cluster_id,
        node.directory,
        ready_ms,
        extra={"node_id": node.node_id, "cluster_id": node.cluster_id, "ready_ms": round(ready_ms)},
    )
    if node.metrics is not None:
        logger.info("metrics at http://%s/metrics", node.metrics.address)


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
    _tell_ready(node, (clock.monotonic() - began) * 1000)
    failed = asyncio.create_task(node.failed())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        logger.critical("giving up: %s", failed.result())
        await node.abandon()
        status = 1
    else:
        logger.info("stopping")
        if await node.stop():
            logger.info("stopped cleanly")
            status = 0
        else:
            logger.critical("the stop was not clean: the next start checks everything")
            status = 1
    for task in (failed, stopped):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    workers.close()
    return status
