"""The registration of this broker: it registers under an epoch, is unfenced, and leaves when it stops.

Only a registered broker that is not fenced leads partitions. The epoch is the offset of the registration in
the metadata log, so a later incarnation always has a larger one.

    register -> activate -> run -> leave

`register` retries while no active controller is found, or another incarnation may be alive. `activate` sends
heartbeats until the broker is unfenced, `run` continues them; a failed heartbeat is repeated by the next.
`greet` sends an additional one to every controller that becomes active meanwhile. Each heartbeat reports the
metadata offset up to which this broker has replayed, and its failed and cordoned directories. `leave` is the
controlled shutdown: other brokers take over the leaderships first.

An incarnation that has been replaced by another one of the same id stops with `BrokerSuperseded`, and does
not register again: two nodes with one id would replace each other for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from barnabas.broker.cluster.controller_channel import ControllerChannel
from barnabas.controller.bootstrap import REGISTERED_FEATURES
from barnabas.controller.decisions import NOT_COMMITTED, ControllerNotAnswering, NotController
from barnabas.core.clock import Clock
from barnabas.core.errors import WIRE_ERRORS, BarnabasError, StorageError, wire_error
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.listeners import PROTOCOLS, Listener
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import BrokerImage
from barnabas.metadata.versions import DIRECTORIES_SINCE
from barnabas.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)
from barnabas.protocol.messages.broker_registration import Listener as RegisteredListener

logger = logging.getLogger("barnabas.cluster")

RETRY_S = 0.1  # before a registration is repeated; doubled each time, up to the heartbeat interval
CATCHING_UP_S = 0.01  # between heartbeats of a broker that has not replayed its registration yet
FIRST_SHUTDOWN_S = 0.05  # between the first two heartbeats of a controlled shutdown
MAX_SHUTDOWN_S = 300.0

# hints for errors that refuse a registration for good and may be this broker's fault
_REASONS = {
    "INCONSISTENT_CLUSTER_ID": "its directories were formatted for another cluster",
    "INVALID_REGISTRATION": "one of its directories has the id of a directory of another broker: a copy "
    "needs an id of its own",
    "UNSUPPORTED_VERSION": "the cluster has a feature at a level that this version does not support "
    "(`barnabas cluster describe` shows the levels)",
}
_DUPLICATE = "DUPLICATE_BROKER_REGISTRATION"
_STORAGE = "KAFKA_STORAGE_ERROR"
_STALE = "STALE_BROKER_EPOCH"
_REGISTER = "register"


class RegistrationRefused(BarnabasError):
    """The controller refuses this broker, or no longer knows it."""


class NotRegistered(RegistrationRefused):
    """The controller knows no broker with this id: it was unregistered."""


class RegistrationTimedOut(RegistrationRefused):
    """This broker could not register within initial.broker.registration.timeout.ms."""


class BrokerSuperseded(RegistrationRefused):
    """Another broker has registered with this broker's id; this one must stop."""


class MembershipTiming(NamedTuple):
    """The heartbeat interval, the session timeout, and the time limit of a registration."""

    heartbeat_s: float = 2.0
    session_s: float = 9.0
    registration_s: float = 60.0

    @classmethod
    def of(cls, settings: BrokerSettings) -> MembershipTiming:
        return cls(
            settings.integer("broker.heartbeat.interval.ms") / 1000,
            settings.integer("broker.session.timeout.ms") / 1000,
            settings.integer("initial.broker.registration.timeout.ms") / 1000,
        )


class Membership:
    """One incarnation of a broker. `image` returns the published metadata; `fail` ends the node."""

    def __init__(
        self,
        node_id: int,
        controller: ControllerChannel,
        *,
        image: Callable[[], ClusterImage],
        clock: Clock,
        timing: MembershipTiming,
        fail: Callable[[BaseException], None],
        is_led: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_led` returns whether an active controller is known."""
        self.node_id = node_id
        self.epoch = -1
        self._controller = controller
        self._image = image
        self._clock = clock
        self._timing = timing
        self._fail = fail
        self._is_led = is_led
        self._registration: BrokerRegistrationRequest | None = None
        self._turn = asyncio.Lock()  # one heartbeat at a time
        self._failed: dict[bytes, None] = {}  # directories
        self._cordoned: list[bytes] | None = None  # None until it is known
        self._is_leaving = False
        self._trouble = ""  # why the last request failed

    # --- registration

    async def register(
        self,
        *,
        cluster_id: str,
        incarnation_id: UUID,
        directory_ids: Sequence[UUID],
        listeners: Sequence[Listener],
        rack: str | None,
        previous_epoch: int | None,
    ) -> None:
        """Register with the controller. `previous_epoch` is the last incarnation's epoch, if no written data
        was lost since."""
        self._registration = BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id.bytes,
            listeners=[
                RegisteredListener(
                    name=one.name,
                    host=one.host,
                    port=one.port,
                    security_protocol=PROTOCOLS.index(one.protocol),
                )
                for one in listeners
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in REGISTERED_FEATURES.items()
            ],
            rack=rack,
            log_dirs=sorted(each.bytes for each in directory_ids),
            previous_broker_epoch=-1 if previous_epoch is None else previous_epoch,
        )
        deadline, pause_s = self._clock.monotonic() + self._timing.registration_s, RETRY_S
        while not await self._try_to_register(self._registration):
            if self._clock.monotonic() + pause_s >= deadline:
                raise RegistrationTimedOut(
                    f"broker {self.node_id} could not register within {self._timing.registration_s:g} s "
                    f"(initial.broker.registration.timeout.ms): {self._trouble}"
                )
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, self._timing.heartbeat_s)

    async def _try_to_register(self, request: BrokerRegistrationRequest) -> bool:
        """Whether the broker is registered now; if not, the caller retries."""
        try:
            response = await self._controller.send(request, BrokerRegistrationResponse)
        except NOT_COMMITTED as error:
            self._note(error)
            return False
        if _name(response.error_code) == _DUPLICATE:
            self._say(
                f"{_DUPLICATE}: another broker {self.node_id} is registered{self._where()}, and may be "
                "running; every node needs an id of its own (node.id)"
            )
            return False
        if _name(response.error_code) == _STORAGE:
            self._say(f"{_STORAGE}: the active controller cannot write; another one may lead soon")
            return False
        self._require(response.error_code, _REGISTER)
        self._say("")
        self.epoch = response.broker_epoch
        return True

    async def _tell_directories(self) -> None:
        """Register again once the metadata.version can hold this broker's directories."""
        known, image = self._known(), self._image()
        is_missing = known is not None and known.epoch == self.epoch and not known.log_dirs
        if is_missing and image.metadata_version >= DIRECTORIES_SINCE:
            assert self._registration is not None
            await self._try_to_register(self._registration)

    # --- heartbeats

    async def activate(self) -> None:
        """Send heartbeats until the broker is unfenced."""
        while True:
            response = await self._heartbeat()
            if response is None:
                await self._clock.sleep(self._timing.heartbeat_s)
            elif response.is_fenced:
                await self._clock.sleep(CATCHING_UP_S)
            else:
                return

    async def run(self) -> None:
        """Send heartbeats until the broker leaves. Begins when it is active."""
        while True:
            await self._clock.sleep(self._timing.heartbeat_s)
            if self._is_leaving or not await self._report():
                return

    async def greet(self, epoch: int, led_after: Callable[[int], Awaitable[int]]) -> None:
        """Send a heartbeat to every new active controller at once, until the broker leaves. Without one, the
        controller has no connection whose end would tell it that this broker has died. `led_after` waits for
        the leader of a later epoch, and returns that epoch."""
        while True:
            try:
                epoch = await led_after(epoch)
            except BarnabasError as error:  # this node's part in the quorum has ended, and the node ends
                logger.debug("no other controller is waited for: %s", error)
                return
            if self._is_leaving or not await self._report():
                return

    async def _report(self) -> bool:
        """Send a heartbeat, and register directories if needed; False if this broker has been replaced."""
        try:
            await self._heartbeat()
            await self._tell_directories()
        except StorageError as error:  # of the controller in this process, which logs it
            logger.debug("no heartbeat: %s", error)
        except BrokerSuperseded as error:
            self._fail(error)
            return False
        except RegistrationRefused as error:
            self._say(str(error))
        return True

    async def tell_failed(self, directory_id: UUID) -> None:
        """Report a failed directory: this broker cannot lead the partitions in it."""
        self._failed[directory_id.bytes] = None
        await self._heartbeat()

    async def tell_cordoned(self, directory_ids: Sequence[UUID]) -> None:
        """Report the cordoned directories, which get no new partitions; they replace the previous ones."""
        self._cordoned = sorted(each.bytes for each in directory_ids)
        await self._heartbeat()

    async def _heartbeat(self) -> BrokerHeartbeatResponse | None:
        """Send a heartbeat with the full state; None if it failed, and the next one must do."""
        async with self._turn:
            request = BrokerHeartbeatRequest(
                broker_id=self.node_id,
                broker_epoch=self.epoch,
                current_metadata_offset=self._image().offset - 1,
                want_fence=False,
                want_shut_down=self._is_leaving,
                offline_log_dirs=list(self._failed),
                cordoned_log_dirs=self._cordoned,
            )
            try:
                response = await self._controller.send(request, BrokerHeartbeatResponse)
            except NOT_COMMITTED as error:
                self._note(error)
                return None
        name = _name(response.error_code)
        if name == _STALE:
            self._check_superseded()
        self._say("" if name == "NONE" else f"{name} for a heartbeat")
        return response if name == "NONE" else None

    def _check_superseded(self) -> None:
        known, mine = self._known(), self._registration
        if mine is None or known is None or known.epoch <= self.epoch:
            return
        if known.incarnation_id != mine.incarnation_id:
            raise BrokerSuperseded(
                f"another broker has registered as node {self.node_id},{self._where()}: this one stops; "
                "every node needs an id of its own (node.id)"
            )

    # --- controlled shutdown

    async def leave(self) -> None:
        """The controlled shutdown: returns when other brokers lead, or when waiting is useless: the broker is
        not registered any more, or no controller has answered for longer than a session."""
        self._is_leaving = True
        began = answered = self._clock.monotonic()
        pause_s = FIRST_SHUTDOWN_S if self._has_others() else 0.0
        while True:
            try:
                response = await self._heartbeat()
            except BrokerSuperseded:
                return
            now = self._clock.monotonic()
            if response is not None:
                if response.should_shut_down:
                    return
                answered = now
            elif self._known() is None:
                return
            # without a majority of the voters no other broker can take over
            patience_s = self._timing.session_s if self._is_led() else self._timing.heartbeat_s
            if now + pause_s > min(began + MAX_SHUTDOWN_S, answered + patience_s):
                logger.error(
                    "the controller has not let this broker go: %s", self._trouble or "others follow"
                )
                return
            await self._clock.sleep(pause_s)
            pause_s = self._timing.heartbeat_s

    def _has_others(self) -> bool:
        """Whether there are other active brokers, which have to learn that this one stops."""
        return any(each.is_active and each.id != self.node_id for each in self._image().brokers.values())

    # --- other requests to the controller

    async def assign(self, places: Mapping[tuple[bytes, int], UUID]) -> None:
        """Report the directories of partitions, by topic id and number. A metadata.version that cannot hold
        them is no error."""
        from barnabas.protocol.messages.assign_replicas_to_dirs import (
            AssignReplicasToDirsRequest,
            AssignReplicasToDirsResponse,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        directories: dict[bytes, dict[bytes, list[PartitionData]]] = {}
        for (topic_id, partition), directory_id in sorted(places.items()):
            topics = directories.setdefault(directory_id.bytes, {})
            topics.setdefault(topic_id, []).append(PartitionData(partition_index=partition))
        request = AssignReplicasToDirsRequest(
            broker_id=self.node_id,
            broker_epoch=self.epoch,
            directories=[
                DirectoryData(
                    id_=directory_id,
                    topics=[TopicData(topic_id=each, partitions=numbers) for each, numbers in topics.items()],
                )
                for directory_id, topics in directories.items()
            ],
        )
        response = await self._controller.send(request, AssignReplicasToDirsResponse)
        if response.error_code != wire_error("UNSUPPORTED_VERSION").code:
            self._require(response.error_code, "say where its partitions are")

    async def assign_surely(self, places: Mapping[tuple[bytes, int], UUID]) -> None:
        """The same as `assign`, repeated while no controller answers, until this broker leaves."""
        while not self._is_leaving:
            try:
                await self.assign(places)
            except (NotController, ControllerNotAnswering) as error:
                self._note(error)
            else:
                return
            await self._clock.sleep(self._timing.heartbeat_s)

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that no other broker gets."""
        request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.epoch)
        response = await self._controller.send(request, AllocateProducerIdsResponse)
        self._require(response.error_code, "allocate producer ids")
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)

    # --- responses

    def _known(self) -> BrokerImage | None:
        """The broker with this id in the metadata: this incarnation or another one."""
        return self._image().brokers.get(self.node_id)

    def _where(self) -> str:
        """The addresses of the broker with this id in the metadata, if there is one."""
        known = self._known()
        addresses = () if known is None else known.endpoints.values()
        return " at " + ", ".join(f"{each.host}:{each.port}" for each in addresses) if addresses else ""

    def _require(self, error_code: int, what: str) -> None:
        if error_code:
            name = _name(error_code)
            is_forgotten = name == _STALE and self._known() is None
            kind = NotRegistered if is_forgotten else RegistrationRefused
            reason = f": {_REASONS[name]}" if what == _REGISTER and name in _REASONS else ""
            raise kind(f"broker {self.node_id} could not {what}: {name}{reason}")

    def _note(self, error: BarnabasError) -> None:
        """A request failed. An error of the disk under this node's own controller is raised: a retry would
        not help."""
        if isinstance(error, StorageError):
            raise error
        if isinstance(error.__cause__, StorageError):
            raise error.__cause__
        self._say(str(error))

    def _say(self, trouble: str) -> None:
        """Log the first failure, and the first success after it."""
        if trouble and trouble != self._trouble:
            logger.warning("broker %d and the active controller: %s", self.node_id, trouble)
        elif self._trouble and not trouble:
            logger.info("broker %d and the active controller: in contact again", self.node_id)
        self._trouble = trouble


def _name(error_code: int) -> str:
    known = WIRE_ERRORS.get(error_code)  # a newer controller may have other errors
    return f"error {error_code}" if known is None else known.name
