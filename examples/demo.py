"""A shop's orders and payments through a broker and Spark, while both are killed.

The broker (`barnabas serve`) and the Spark pipeline (pipeline.py) run in processes of their own. This one
sends the records of a day that is made up from a seed (shop.py), and meanwhile kills with SIGKILL first the
broker, then the pipeline, and starts each again. In the end it holds what came out against what had to come
out (audit.py): nothing may be lost, nothing may come twice.

    python examples/demo.py                     a directory of its own, removed afterwards
    python examples/demo.py --orders 1000000    more of it
    python examples/demo.py --dir data          a new directory, left for you to look at
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

from rich.markup import escape
from screen import Screen
from serving import free_port, kill_group, start, start_pipeline, stop
from shop import ORDERS, PAYMENTS, Message, Shop, open_shop

from barnabas.client.admin import Admin, NewTopic
from barnabas.client.consumer import Consumer
from barnabas.client.producer import Producer, ProducerConfig
from barnabas.records.compression import Codec
from barnabas.spark.java import NoJava, find_java

try:
    import pyspark
    from audit import READ_COMMITTED, SEAMS, Lag, audit, lag_of, partitions_of, read_revenue
    from report import Step, report
except ImportError as error:
    raise SystemExit(f"{error}: run `make demo`, or `pip install 'barnabas[spark,delta]'`") from None

PAID = "paid-orders"
DEAD = f"{ORDERS}.dlq", f"{PAYMENTS}.dlq"
GROUPS = {"shop-paid-orders": (ORDERS, PAYMENTS), "shop-revenue": (ORDERS,)}
PARTITIONS = 3
RECORDS_PER_SECOND = 8_000  # as fast as it is read, or there would be nothing to see
CHUNKS = 300  # acknowledged one after the other, so that no partition runs far ahead of another
PATIENCE_SECONDS = 300.0
SENT_BAR, PAID_BAR, DEAD_BAR, REVENUE_BAR = "sent", "paid orders", "dead letters", "revenue, by hour"


class DemoFailed(Exception):
    """Something ended, or came to a halt, that should have gone on."""


class Play:
    """The run: two processes, a producer, and somebody who counts what comes out."""

    def __init__(self, directory: Path, shop: Shop, screen: Screen) -> None:
        self.shop = shop
        self.screen = screen
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.broker_directory, self.shop_directory = directory / "broker", directory / "shop"
        self.table = self.shop_directory / "revenue"
        self.steps: list[Step] = []
        self.counts: Counter[str] = Counter()  # what the bars show
        self._meanwhile: list[asyncio.Task[None]] = []
        self._restarts = 2
        self._moved = time.perf_counter()
        self._broker: subprocess.Popen[bytes] | None = None
        self._pipeline: subprocess.Popen[bytes] | None = None

    async def run(self) -> None:
        """The whole story, up to the point where everything has come out."""
        await self._start_broker()
        await self._create_topics()
        bars = {SENT_BAR: len(self.shop.messages) + 1, PAID_BAR: len(self.shop.paid)}
        self.screen.start_bars(bars | {DEAD_BAR: len(self.shop.poison), REVENUE_BAR: len(self.shop.revenue)})
        counting = self._begin(self._count())
        try:
            async with Producer(*SEAMS, self.bootstrap, ProducerConfig(compression=Codec.LZ4)) as producer:
                await self._tell(producer)
        finally:
            counting.cancel()
            self.screen.stop_bars()

    def _begin(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Something that goes on meanwhile; if it fails, whoever waits hears of it."""
        self._meanwhile.append(asyncio.create_task(work))
        return self._meanwhile[-1]

    async def _tell(self, producer: Producer) -> None:
        messages = self.shop.messages
        third = len(messages) // 3
        began = time.perf_counter()
        self._start_pipeline()
        sending = self._begin(self._send(producer, messages[:third]))
        await self._output("the first paid orders are out", "pipeline started, first orders out")
        await sending

        sending = self._begin(self._send(producer, messages[third : 2 * third]))
        await self._until(lambda: self.counts[SENT_BAR] >= third * 3 // 2)
        await self._kill_broker()
        await sending

        sending = self._begin(self._send(producer, messages[2 * third :]))
        await self._until(lambda: self.counts[SENT_BAR] >= third * 5 // 2)
        killed, read = time.perf_counter(), sum(lag.read for lag in await self._lags())
        await self._kill_pipeline()
        await sending
        await self._read_up()
        read = sum(lag.read for lag in await self._lags()) - read
        self.steps.append(Step("  and everything read, by both streams", time.perf_counter() - killed, read))

        await self._send(producer, [self.shop.closing])
        await self._until(self._is_complete)
        await self._read_up()
        self.steps.append(Step("from start to end", time.perf_counter() - began, len(messages) + 1))

    # ---- the processes -----------------------------------------------------------------------------------

    async def _start_broker(self) -> None:
        self._broker, seconds = await asyncio.to_thread(start, self.broker_directory, self.port)
        self.screen.say("broker", f"answers at {self.bootstrap}, after {seconds * 1000:.0f} ms")

    def _start_pipeline(self) -> None:
        self._pipeline = start_pipeline(self.bootstrap, self.shop_directory)
        self.screen.say("pipeline", "starting: Spark, with two streams")

    async def _kill_broker(self) -> None:
        assert self._broker is not None
        self._broker.kill()
        self._broker.wait()
        self._say_killed("broker")
        await self._start_broker()
        await self._output("goes on: more paid orders are out", "broker killed and started, more out")

    async def _kill_pipeline(self) -> None:
        assert self._pipeline is not None
        await asyncio.to_thread(kill_group, self._pipeline)
        self._say_killed("pipeline")
        self._start_pipeline()
        await self._output("goes on: more paid orders are out", "pipeline killed and started, more out")

    def _start_again(self) -> None:
        """What whoever looks after a pipeline does if it ends by itself; and say so."""
        said = (self.shop_directory / "pipeline.log").read_text(errors="replace").splitlines()
        reason = next((line for line in reversed(said) if line and not line[0].isspace()), "nothing")
        if self._restarts == 0:
            spark_said = (self.shop_directory / "spark.log").read_text(errors="replace").splitlines()
            causes = dict.fromkeys(line for line in spark_said if line.startswith("Caused by: "))
            log = "\n".join([*said[-40:], *causes])
            raise DemoFailed(f"the pipeline ended by itself once too often, and said:\n{log}")
        self._restarts -= 1
        self.screen.say("pipeline", f"[bold red]ended by itself:[/] {escape(reason)}")
        self._start_pipeline()

    def _say_killed(self, whom: str) -> None:
        sent, out = self.counts[SENT_BAR], self.counts[PAID_BAR]
        self.screen.say(whom, f"[bold red]kill -9[/], with {sent:,} records sent and {out:,} paid orders out")
        self.screen.keep_bars()

    def stop_pipeline(self) -> None:
        """Let it end in peace."""
        if self._pipeline is not None:
            stop(self._pipeline)
            self._pipeline = None

    def stop(self) -> None:
        """Leave nothing running, however it went."""
        if self._pipeline is not None and self._pipeline.poll() is None:
            kill_group(self._pipeline)
        if self._broker is not None and self._broker.poll() is None:
            stop(self._broker)
        shutil.rmtree(self.shop_directory / "tmp", ignore_errors=True)

    # ---- in, and out -------------------------------------------------------------------------------------

    async def _create_topics(self) -> None:
        keep = {"retention.ms": "-1"}  # the day that is played is long over
        topics = [NewTopic(name, PARTITIONS, configs=keep) for name in (ORDERS, PAYMENTS, PAID, *DEAD)]
        async with Admin(*SEAMS, self.bootstrap) as admin:
            await admin.create_topics(topics)

    async def _send(self, producer: Producer, messages: Sequence[Message]) -> None:
        """Send these, not too fast, each acknowledged."""
        began, chunk = time.perf_counter(), max(len(self.shop.messages) // CHUNKS, 1)
        for first in range(0, len(messages), chunk):
            waiting = [
                await producer.send(each.topic, each.value, each.key, timestamp_ms=each.timestamp_ms)
                for each in messages[first : first + chunk]
            ]
            await asyncio.gather(*waiting)
            self._show(SENT_BAR, self.counts[SENT_BAR] + len(waiting))
            await asyncio.sleep(began + (first + chunk) / RECORDS_PER_SECOND - time.perf_counter())

    async def _count(self) -> None:
        """Move the bars: what a reader of committed records gets to see, and the lines of the Delta table."""
        async with Admin(*SEAMS, self.bootstrap) as admin:
            partitions = await partitions_of(admin, (PAID, *DEAD))
        async with Consumer(*SEAMS, self.bootstrap, READ_COMMITTED) as consumer:
            consumer.assign(partitions)
            while True:
                for each in await consumer.poll_batches(timeout_ms=500):
                    bar = PAID_BAR if each.topic == PAID else DEAD_BAR
                    self._show(bar, self.counts[bar] + each.columns().rows)
                lines = await asyncio.to_thread(read_revenue, self.table)
                self._show(REVENUE_BAR, len(lines))

    def _show(self, bar: str, count: int) -> None:
        if count != self.counts[bar]:
            self.counts[bar], self._moved = count, time.perf_counter()
        self.screen.move_bar(bar, count)

    # ---- waiting -----------------------------------------------------------------------------------------

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._wait()

    async def _output(self, what: str, step: str) -> None:
        """Wait for more paid orders than there are now, and note how long that took."""
        began, before = time.perf_counter(), self.counts[PAID_BAR]
        await self._until(lambda: self.counts[PAID_BAR] > before)
        self.steps.append(Step(step, time.perf_counter() - began))
        self.screen.say("pipeline", f"{what}, after {self.steps[-1].seconds:.1f} s")

    async def _read_up(self) -> None:
        """Wait until the pipeline has read everything, by what it tells the broker of its groups."""
        while any(lag.end > lag.read for lag in await self._lags()):
            await self._wait()

    async def _lags(self) -> list[Lag]:
        return await lag_of(self.bootstrap, GROUPS)

    def _is_complete(self) -> bool:
        shop, counts = self.shop, self.counts
        wanted = (PAID_BAR, len(shop.paid)), (DEAD_BAR, len(shop.poison)), (REVENUE_BAR, len(shop.revenue))
        return all(counts[bar] >= count for bar, count in wanted)

    async def _wait(self) -> None:
        """A moment, as long as the pipeline lives and anything moves at all."""
        await asyncio.sleep(0.1)
        for task in self._meanwhile:
            if task.done():
                task.result()
        if self._pipeline is not None and self._pipeline.poll() is not None:
            self._start_again()
        if time.perf_counter() - self._moved > PATIENCE_SECONDS:
            raise DemoFailed(f"nothing has moved for {PATIENCE_SECONDS:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description="Orders and payments through a broker and Spark.")
    parser.add_argument("--dir", type=Path, help="keep everything in this new directory")
    parser.add_argument("--orders", type=int, default=100_000, help="how many to send")
    parser.add_argument("--pictures", type=Path, help="draw what was shown, as SVG, into this directory")
    options = parser.parse_args()
    try:
        java = find_java()
    except NoJava as error:
        raise SystemExit(str(error)) from None
    if options.dir is not None and options.dir.exists():
        raise SystemExit(f"{options.dir} exists already: name a new directory")
    logging.getLogger("barnabas").setLevel(logging.ERROR)  # that a broker is away is no news here
    screen = Screen()
    screen.say("demo", f"{options.orders:,} orders; Spark {pyspark.__version__} on Java {java.version}")
    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as temporary:
        directory = options.dir or Path(temporary)
        is_exact = asyncio.run(play(directory, open_shop(options.orders), screen))
    if options.pictures is not None:
        screen.draw(options.pictures, "make demo")
    look_around(screen, options.dir)
    return 0 if is_exact else 1


async def play(directory: Path, shop: Shop, screen: Screen) -> bool:
    """The run and its verdict."""
    run = Play(directory, shop, screen)
    try:
        await run.run()
        run.stop_pipeline()
        began = time.perf_counter()
        findings = await audit(run.bootstrap, run.table, shop, GROUPS)
        run.steps.append(
            Step("everything read back, and compared", time.perf_counter() - began, findings.records)
        )
        return report(screen, shop, findings, run.steps)
    except DemoFailed as error:
        screen.say("demo", f"[bold red]{escape(str(error))}[/]")
        return False
    finally:
        run.stop()


def look_around(screen: Screen, directory: Path | None) -> None:
    """Where to go from here."""
    screen.say("next", "examples/pipeline.py is the pipeline; docs/spark.md has all of it")
    if directory is None:
        screen.say("", "make demo ARGS='--dir data' keeps everything: topics, checkpoints, the Delta table")
        return
    screen.say("", f"barnabas serve --dir {directory}/broker, and beside it:")
    screen.say("", "barnabas group describe shop-revenue")
    screen.say("", "barnabas consume orders.dlq --count 5")


if __name__ == "__main__":
    sys.exit(main())
