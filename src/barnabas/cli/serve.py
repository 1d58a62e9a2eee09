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
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from barnabas import __version__
from barnabas.broker.node import Node
from barnabas.cli.log_format import set_up_logging
from barnabas.cli.node_settings import add_settings, load_settings
from barnabas.core.clock import SystemClock
from barnabas.core.descriptors import raise_open_file_limit
from barnabas.core.errors import BarnabasError, InvariantViolation
from barnabas.core.event_loop import new_event_loop
from barnabas.core.os_disk import OsDisk
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.workers import ThreadWorkers, Workers

logger = logging.getLogger("barnabas.serve")

_EXAMPLES = """examples:
  barnabas serve                                        127.0.0.1:9092, data in ./barnabas-data
  barnabas serve --dir /var/lib/barnabas --listen 0.0.0.0:9092
  barnabas serve --config server.properties --set log.retention.hours=24
  barnabas serve --metrics 127.0.0.1:9404               http://127.0.0.1:9404/metrics for Prometheus
"""


def main(arguments: Sequence[str], network_of: Callable[[Workers], OsNetwork] = OsNetwork) -> int:
    """Serve until stopped; the exit status."""
    options = _parser().parse_args(arguments)
    log_format = options.log_format
    try:
        settings = load_settings(
            options, barnabas_metrics_listen=options.metrics, barnabas_log_format=options.log_format
        )
        log_format = settings.string("barnabas.log.format")
        set_up_logging(log_format, options.log_level, os.environ)
        return _run(settings, network_of)
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
        description="Run a node: by default a broker and a controller, a cluster of one.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings(parser)
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


def _run(settings: BrokerSettings, network_of: Callable[[Workers], OsNetwork]) -> int:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(settings, network_of))


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


async def _unless_stopped(starting: Coroutine[Any, Any, Node], stop: asyncio.Event) -> Node | None:
    """The node, None where it is to stop before it serves: one may wait for the others of its quorum."""
    start, stopped = asyncio.create_task(starting), asyncio.create_task(stop.wait())
    await asyncio.wait((start, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        start.cancel()
        await asyncio.wait((start,))
    stopped.cancel()
    return None if start.cancelled() else start.result()


async def _serve(settings: BrokerSettings, network_of: Callable[[Workers], OsNetwork]) -> int:
    raise_open_file_limit()
    clock, workers = SystemClock(), ThreadWorkers()
    began = clock.monotonic()
    for warning in settings.warnings:
        logger.warning("%s", warning)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    starting = Node.start(
        settings,
        disk=lambda path: OsDisk(path, workers, clock),
        network=network_of(workers),
        clock=clock,
        random=SystemRandom(),
        workers=workers,
        host_name=os.uname().nodename,
    )
    node = await _unless_stopped(starting, stop)
    if node is None:
        logger.info("stopped while starting")
        workers.close()
        return 0
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
