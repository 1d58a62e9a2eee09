"""Three nodes in processes of their own, to be killed, stopped and cut off, and a client's view of each.

Their data is in a directory that goes with the story. Everything that waits has a time limit: a story that
does not come to its end fails, with what it waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from barnabas import __version__
from barnabas.cli.failures import CommandFailed
from barnabas.cli.local_cluster.plan import format_nodes
from barnabas.cli.stories.node_process import KEEP
from barnabas.cli.stories.plan import HOST, settings_of, story_plan
from barnabas.cli.stories.timeline import CUT_OFF, DEAD, LEADS, SERVES, Timeline
from barnabas.cli.up import answers_as
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.cluster import ClientConfig
from barnabas.client.offsets import LATEST
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError
from barnabas.core.network import Address
from barnabas.core.os_network import OsNetwork
from barnabas.core.random import SystemRandom
from barnabas.core.settings.listeners import CONTROLLER_PORT_DISTANCE
from barnabas.core.workers import ThreadWorkers
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.metadata import MetadataResponsePartition as PartitionView
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.schema import NO_UUID, Message
from barnabas.transport.connection import open_connection

M = TypeVar("M", bound=Message)

WAIT_S = 90.0
ASK_S = 2.0
CLIENT = ClientConfig(client_id="barnabas-story", request_timeout_ms=2000, connect_timeout_ms=2000)
_PATIENT = CLIENT._replace(request_timeout_ms=60_000)  # of requests that are no part of the story
_POLL_S = 0.02
_DEBUGGER = -2  # may ask any replica
_SETTINGS_PREFIX = "KAFKA_"


class Stage:
    """The nodes 1, 2 and 3; to be used with `async with`."""

    def __init__(self, clock: Clock, timeline: Timeline) -> None:
        self.clock, self.timeline = clock, timeline
        self._workers = ThreadWorkers()
        self.seams = OsNetwork(self._workers), clock, SystemRandom()
        self.directory = Path(tempfile.mkdtemp(prefix="barnabas-story-"))
        self.plan = story_plan(self.directory, SystemRandom())
        self.ids = tuple(node.node_id for node in self.plan.nodes)
        self.bootstrap = self.plan.bootstrap
        self.admin = Admin(*self.seams, self.bootstrap, _PATIENT)
        self._scratch = memoryview(bytearray(1 << 16))
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._controls: dict[int, socket.socket] = {}
        self._leading: dict[int, bool] = {}

    async def __aenter__(self) -> Stage:
        try:
            await format_nodes(self.plan, self.clock, SystemRandom())
            for node_id in self.ids:
                await self._spawn(node_id)
            await asyncio.gather(*map(self._serves, self.ids))
        except BaseException:
            await self.close()
            raise
        self.timeline.begin()
        for node_id in self.ids:
            self.timeline.turn(lane(node_id), SERVES)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything."""
        await self.admin.close()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*(process.wait() for process in self._processes.values()))
        for control in self._controls.values():
            control.close()
        self._workers.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- nodes

    async def _spawn(self, node_id: int) -> None:
        node = self.plan.node(node_id)
        assert node is not None
        ours, theirs = socket.socketpair()
        ports = ",".join(f"{each.node_id}={':'.join(map(str, each.ports))}" for each in self.plan.nodes)
        command = [sys.executable, "-m", "barnabas.cli.stories.node_process", ports, str(node_id)]
        with theirs, node.log_file.open("ab") as log:
            self._processes[node_id] = await asyncio.create_subprocess_exec(
                *command,
                *("--config", str(node.settings_file), *settings_of(self.plan, node_id)),
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    name: text for name, text in os.environ.items() if not name.startswith(_SETTINGS_PREFIX)
                },
            )
        ours.setblocking(False)
        self._controls[node_id] = ours

    async def _serves(self, node_id: int) -> None:
        network, clock, _ = self.seams

        async def answers() -> bool:
            if self._processes[node_id].returncode is not None:
                raise CommandFailed(f"node {node_id} cannot start", self._log_tail(node_id))
            return await answers_as(
                self.plan.cluster_id, self._address(node_id), network, clock, self._scratch
            )

        await self.until(answers, f"node {node_id} serves")

    def _log_tail(self, node_id: int) -> str:
        node = self.plan.node(node_id)
        assert node is not None
        lines = node.log_file.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "its log is empty"

    def last_words(self) -> str:
        """What each node has logged last: why a story could not go on."""
        return "\n  ".join(f"node {node_id}: {self._log_tail(node_id)}" for node_id in self.ids)

    def _address(self, node_id: int) -> Address:
        node = self.plan.node(node_id)
        assert node is not None
        return Address(HOST, node.port)

    async def kill(self, node_id: int, text: str) -> None:
        """End a process as a crash does."""
        self._processes[node_id].kill()
        self.timeline.add(lane(node_id), text, DEAD)
        await self._processes[node_id].wait()
        self._controls.pop(node_id).close()
        self._leading[node_id] = False

    async def start(self, node_id: int, text: str) -> None:
        """Start it again; returns when it serves."""
        await self._spawn(node_id)
        await self._serves(node_id)
        self.timeline.add(lane(node_id), text, SERVES)

    async def isolate(self, node_id: int, text: str) -> None:
        """Cut a node off from the others; clients still reach it."""
        await self._tell_all(f"isolate {node_id} {KEEP}")
        self.timeline.add(lane(node_id), text, CUT_OFF)
        self._leading[node_id] = False

    async def heal(self, node_id: int, text: str) -> None:
        """Connect it again."""
        await self._tell_all(f"heal {node_id}")
        self.timeline.add(lane(node_id), text, SERVES)

    async def _tell_all(self, command: str) -> None:
        """Tell every process, and wait until each has done it."""
        loop = asyncio.get_running_loop()

        async def tell(control: socket.socket) -> None:
            await loop.sock_sendall(control, command.encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                answer += await loop.sock_recv(control, 1 << 12)

        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*map(tell, self._controls.values()))

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Send a node a signal."""
        self._processes[node_id].send_signal(number)

    # --- what each node says

    async def ask(
        self, node_id: int, request: Message, response: type[M], *, as_controller: bool = False
    ) -> M | None:
        """Ask one node, or its controller, over a connection of its own; None where it does not answer."""
        address = self._address(node_id)
        if as_controller:
            address = address._replace(port=address.port + CONTROLLER_PORT_DISTANCE)
        network, clock, _ = self.seams
        try:
            connection = await open_connection(
                network,
                clock,
                address,
                client_id=CLIENT.client_id,
                software_version=__version__,
                connect_timeout_s=ASK_S,
                request_timeout_s=ASK_S,
                scratch=memoryview(bytearray(1 << 16)),
            )
        except BarnabasError:
            return None
        try:
            return await connection.ask(request, response)
        except BarnabasError:
            return None
        finally:
            connection.close()

    async def view(self, node_id: int, topic: str, partition: int = 0) -> PartitionView | None:
        """A partition as one node knows it."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic, topic_id=NO_UUID)],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        answer = await self.ask(node_id, request, MetadataResponse)
        if answer is None or not answer.topics:
            return None
        found = [each for each in answer.topics[0].partitions if each.partition_index == partition]
        return found[0] if found else None

    async def create(self, topic: str, assignments: Mapping[int, list[int]]) -> None:
        """Create a topic with these replicas, and wait until all of them are in sync."""
        await self.admin.create_topics([NewTopic(topic, assignments=assignments)])
        for partition in assignments:
            await self.in_sync(topic, partition, self.ids)

    async def in_sync(self, topic: str, partition: int, nodes: tuple[int, ...]) -> None:
        """Wait until these replicas are in sync, as all nodes know, and tell the picture who leads."""

        async def are() -> bool:
            views = await asyncio.gather(*(self.view(each, topic, partition) for each in nodes))
            is_so = all(view is not None and set(view.isr_nodes) == set(nodes) for view in views)
            if is_so and views[0] is not None and partition == 0:
                self.leads(views[0].leader_id)
            return is_so

        await self.until(are, f"{topic}-{partition} is in sync on {nodes}")

    async def new_leader(self, topic: str, old: int, partition: int = 0) -> PartitionView:
        """Wait until the others know another leader than `old`."""
        others = [each for each in self.ids if each != old]
        found: list[PartitionView] = []

        async def is_there() -> bool:
            views = await asyncio.gather(*(self.view(each, topic, partition) for each in others))
            known = [view for view in views if view is not None and view.leader_id not in (-1, old)]
            found[:] = known
            return len(known) == len(others)

        await self.until(is_there, f"{topic}-{partition} has another leader than {old}")
        if partition == 0:
            self.leads(found[0].leader_id)
        return found[0]

    def leads(self, node_id: int) -> None:
        """The picture is about the first partition's leader."""
        for each in self.ids:
            if self._leading.get(each) and each != node_id:
                self.timeline.turn(lane(each), SERVES)
            self._leading[each] = each == node_id
        self.timeline.turn(lane(node_id), LEADS)

    async def end_of(self, node_id: int, topic: str, partition: int = 0) -> int:
        """Where a partition's log ends on one node, which may be fenced."""
        place = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=_DEBUGGER,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=topic, partitions=[place])],
            timeout_ms=int(ASK_S * 1000),
        )
        ends: list[int] = []

        async def is_told() -> bool:
            answer = await self.ask(node_id, request, ListOffsetsResponse)
            found = [] if answer is None else [each for told in answer.topics for each in told.partitions]
            ends[:] = [each.offset for each in found if not each.error_code]
            return bool(ends)

        await self.until(is_told, f"node {node_id} tells where {topic}-{partition} ends")
        return ends[0]

    async def end_of_epoch(self, node_id: int, topic: str, epoch: int, partition: int = 0) -> int:
        """Where an epoch of a partition's leaders ended, by its leader now."""
        place = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[place])])
        ends: list[int] = []

        async def is_told() -> bool:
            answer = await self.ask(node_id, request, OffsetForLeaderEpochResponse)
            found = [] if answer is None else [each for told in answer.topics for each in told.partitions]
            ends[:] = [each.end_offset for each in found if not each.error_code and each.end_offset >= 0]
            return bool(ends)

        await self.until(is_told, f"node {node_id} tells where epoch {epoch} ended")
        return ends[0]

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until something holds."""
        deadline = self.clock.monotonic() + WAIT_S
        while not await holds():
            if self.clock.monotonic() >= deadline:
                raise CommandFailed(f"it did not come to this within {WAIT_S:g} s: {what}")
            await self.clock.sleep(_POLL_S)


def lane(node_id: int) -> str:
    """The lane of a node."""
    return f"node {node_id}"
