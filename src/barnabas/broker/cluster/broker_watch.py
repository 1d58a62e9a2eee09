"""The active controller's watch over brokers: it fences brokers that are silent or have died.

Sessions are checked from time to time (controller/sessions.py). A death is noticed by the sockets: the
connection of a broker's latest heartbeat closes, and a dial to the broker's registered listener is refused. A
controller that becomes active has no such connections yet. It dials every broker whose session it inherits,
at once and at every check of the sessions until the broker's first heartbeat. The session of a broker in the
former leader's process starts when that leader was last heard, because it has been silent since then; so the
time that a voter waited for the leader counts. Before a broker that was found dead is fenced:

- a dial that is accepted is repeated: a process that is being killed may lose its connections first;
- a dial that is refused is repeated after a pause in which other deaths are noticed: if most brokers are
  found dead at once, none of them is fenced, and their sessions decide.

`run` goes on while this node is the active controller. Nothing is kept: the next run begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from barnabas.broker.quorum.controller import ActiveController
from barnabas.controller.contacts import BrokerContacts, BrokerLife, Carrier, Contact, Hint
from barnabas.controller.decisions import NOT_COMMITTED, Decision
from barnabas.controller.elections import ElectionDefaults
from barnabas.controller.registrations import dialled_addresses
from barnabas.controller.sessions import (
    LOOKS_A_SESSION,
    fence_dead,
    fence_silent,
    sweep,
    wait_no_longer,
)
from barnabas.core.clock import Clock
from barnabas.core.network import ConnectionLost, ConnectionRefused, Network
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import BrokerImage

logger = logging.getLogger("barnabas.controller")

# the largest part of an inherited session that may count as over: the rest is for heartbeats to this
# controller
COUNTED_OF_SESSION = 1 / 3
# a dial that takes longer proves nothing
DIAL_S = 1.0
# the pauses before an accepted dial is repeated
REPEATED_AFTER_S = (0.0, 0.05, 0.25)
# between the first refused dial and the decision
SETTLE_S = 0.1


class BrokerWatch:
    """`former_leader` returns the node that led before this one, and when it was last heard (monotonic);
    `inter_broker_listener` is the name of the listener to dial, None if this node knows none; `by_socket` is
    `barnabas.fence.by.socket`."""

    def __init__(
        self,
        active: ActiveController,
        network: Network,
        clock: Clock,
        *,
        node_id: int,
        former_leader: Callable[[], tuple[int, float]],
        inter_broker_listener: str | None,
        session_s: float,
        by_socket: bool,
        election_defaults: Callable[[], ElectionDefaults],
    ) -> None:
        self.session_s = session_s
        self.inter_broker_listener = inter_broker_listener
        self.fenced_by_session = self.fenced_by_socket = 0  # totals, for the metrics
        self._active = active
        self._network = network
        self._clock = clock
        self._node_id = node_id
        self._former_leader = former_leader
        self._by_socket = by_socket
        self._election_settings = election_defaults
        self._tasks: asyncio.TaskGroup | None = None
        # brokers being dialled; True to repeat the check afterwards
        self._suspected: dict[BrokerLife, bool] = {}
        self._dead: dict[BrokerLife, Contact] = {}  # found dead, with their last contact

    @property
    def _contacts(self) -> BrokerContacts:
        return self._active.contacts

    async def run(self) -> None:
        """Watch until cancelled. Begins when this node has become the active controller."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks, self._suspected, self._dead = tasks, {}, {}
                try:
                    await self._watch()
                finally:
                    if self._tasks is tasks:  # not that of the next run
                        self._tasks = None
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _watch(self) -> None:
        now, (leader_id, heard_at) = self._clock.monotonic(), self._former_leader()
        heard = {leader_id: max(heard_at, now - self.session_s * COUNTED_OF_SESSION)}
        self._contacts.inherit(self._active.decided, now, self.session_s, heard)
        while True:
            self._suspect_silent()
            await self._clock.sleep(await self._sweep())

    # --- sessions

    async def _sweep(self) -> float:
        """Fence one broker whose session is over, or elect leaders if the wait for one broker is over;
        returns the time until the next check."""
        found = sweep(self._active.decided, self._contacts, self._clock.monotonic(), self.session_s)
        try:
            if found.expired is not None:
                await self._fence_silent(found.expired)
            if found.waited_for is not None:
                await self._wait_no_longer(found.waited_for)
        except NOT_COMMITTED as error:
            logger.warning("brokers whose sessions are over are not fenced yet: %s", error)
            return self.session_s / LOOKS_A_SESSION
        return found.again_s

    async def _fence_silent(self, broker: BrokerLife) -> None:
        fenced = await self._active.submit(
            lambda image: fence_silent(image, broker, self.election_defaults(image))
        )
        if fenced is not None:
            self.fenced_by_session += 1
            logger.warning(
                "fenced broker %d of epoch %d: no heartbeat for %g s", broker.id, broker.epoch, self.session_s
            )

    async def _wait_no_longer(self, hint: Hint) -> None:
        broker = hint.broker
        await self._active.submit(lambda image: wait_no_longer(image, broker, self.election_defaults(image)))
        self._contacts.waited_for(hint)

    def election_defaults(self, image: ClusterImage) -> ElectionDefaults:
        """The current settings of elections, with the brokers that they wait for."""
        waiting_for = self._contacts.waiting_for(image, self._clock.monotonic())
        return self._election_settings()._replace(waiting_for=waiting_for)

    # --- deaths

    def closed(self, broker: BrokerLife, carrier: Carrier) -> None:
        """A connection with heartbeats of a broker has closed."""
        contact = self._contacts.last(broker)
        if contact is not None and contact.carrier is carrier:
            self._suspect(broker)

    def _suspect_silent(self) -> None:
        """Dial brokers that have sent no heartbeat to this controller yet: they have no connection that could
        close."""
        for broker in self._active.decided.brokers.values():
            contact = self._contacts.last(BrokerLife.of(broker))
            is_silent = contact is not None and contact.carrier is None
            if is_silent and not broker.fenced and broker.id != self._node_id:  # not the one in this process
                self._suspect(BrokerLife.of(broker))

    def _suspect(self, broker: BrokerLife) -> None:
        if not self._by_socket or self._tasks is None:
            return
        if broker in self._suspected:
            self._suspected[broker] = True
        else:
            self._suspected[broker] = False
            self._tasks.create_task(self._investigate(broker))

    async def _investigate(self, broker: BrokerLife) -> None:
        suspected, is_due = self._suspected, True
        try:
            while is_due:
                suspected[broker] = False
                if await self._is_found_dead(broker):
                    await self._fence_dead(broker)
                is_due = suspected[broker]
        except NOT_COMMITTED as error:
            logger.warning("broker %d is found dead, and not fenced yet: %s", broker.id, error)
        finally:
            del suspected[broker]

    async def _is_found_dead(self, broker: BrokerLife) -> bool:
        for pause_s in REPEATED_AFTER_S:
            if pause_s:
                await self._clock.sleep(pause_s)
            known, contact = self._unfenced(broker), self._contacts.last(broker)
            if known is None or contact is None or (contact.carrier is not None and contact.carrier.is_open):
                return False
            if await self.is_refused(known):
                break
        else:
            return False
        self._dead[broker] = contact
        await self._clock.sleep(SETTLE_S)
        if not await self.is_refused(known):
            self._dead.pop(broker, None)
        return broker in self._still_dead()

    def _unfenced(self, broker: BrokerLife) -> BrokerImage | None:
        known = self._active.decided.brokers.get(broker.id)
        return None if known is None or known.epoch != broker.epoch or known.fenced else known

    def _still_dead(self) -> set[BrokerLife]:
        """The brokers that were found dead and have had no contact since."""
        last = self._contacts.last
        self._dead = {each: heard for each, heard in self._dead.items() if last(each) is heard}
        return set(self._dead)

    async def _fence_dead(self, broker: BrokerLife) -> None:
        contacts, now = self._contacts, self._clock.monotonic()

        def decide(image: ClusterImage) -> Decision[BrokerImage | None]:
            dead, contact = self._still_dead(), contacts.last(broker)
            decision = fence_dead(image, contacts, broker, dead, now, self.election_defaults(image))
            if decision.response is not None and contact is not None:
                contacts.found_dead(broker, contact.at + self.session_s)
            return decision

        if await self._active.submit(decide) is not None:
            self.fenced_by_socket += 1
            logger.warning(
                "fenced broker %d of epoch %d: its process is gone, its listener refuses connections",
                broker.id,
                broker.epoch,
            )
        elif self._unfenced(broker) is not None:
            why = "as once when it lived" if contacts.was_misjudged(broker) else "with most others"
            logger.warning("broker %d is found dead, %s: its session decides", broker.id, why)

    async def is_refused(self, broker: BrokerImage) -> bool:
        """Whether nothing listens at the broker's registered addresses. One dial that is accepted, or gets no
        answer, means False."""
        from barnabas.transport.errors import TimedOut  # a cluster of one dials nobody
        from barnabas.transport.waiting import within

        addresses = dialled_addresses(broker, self.inter_broker_listener)
        for host, port in addresses:
            try:
                dial = self._network.connect(host, port)
                connection = await within(self._clock, DIAL_S, dial, f"a dial to {host}:{port}")
            except ConnectionRefused:
                continue
            except (ConnectionLost, TimedOut):
                return False
            connection.close()
            return False
        return bool(addresses)
