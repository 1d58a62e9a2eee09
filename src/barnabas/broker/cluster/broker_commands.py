"""The active controller's commands for registrations and heartbeats of brokers.

Unlike other commands they depend on how a request arrived: on a connection, or by a call from the broker in
this process. That is recorded as soft state (controller/contacts.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.quorum.controller import ActiveController
from barnabas.controller import brokers
from barnabas.controller.contacts import OWN_PROCESS, UNKNOWN_OFFSET, BrokerLife, Contact
from barnabas.controller.decisions import Decision
from barnabas.controller.elections import ElectionDefaults
from barnabas.controller.registrations import Liveness, dialled_addresses, liveness
from barnabas.core.clock import Clock
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.parts import BrokerImage

if TYPE_CHECKING:
    from barnabas.broker.cluster.broker_watch import BrokerWatch
    from barnabas.broker.connections.requests import ClientConnection
    from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
    from barnabas.protocol.messages.broker_registration import (
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )


class BrokerCommands:
    """`watch` makes the watch over brokers, at the first request from another node. If it is None, only the
    broker of this process registers."""

    def __init__(
        self,
        active: ActiveController,
        clock: Clock,
        *,
        cluster_id: str,
        watch: Callable[[], BrokerWatch] | None,
        election_defaults: Callable[[], ElectionDefaults],
    ) -> None:
        self._active = active
        self._clock = clock
        self._cluster_id = cluster_id
        self._make_watch = watch
        self._watch: BrokerWatch | None = None
        self._election_defaults = election_defaults

    def defaults(self) -> ElectionDefaults:
        """The settings of elections, with the brokers that they wait for now."""
        waiting_for = self._active.contacts.waiting_for(self._active.decided, self._clock.monotonic())
        defaults = self._election_defaults()
        return defaults._replace(waiting_for=waiting_for) if waiting_for else defaults

    # --- registrations

    async def register(
        self, request: BrokerRegistrationRequest, connection: ClientConnection | None
    ) -> BrokerRegistrationResponse:
        """`connection` is the connection of the request, None for a request from this process."""
        active = self._active
        active.contacts.forget_all_but(active.decided)
        refused = await self._refused(request, connection)

        def decide(image: ClusterImage) -> Decision[BrokerRegistrationResponse]:
            known = image.brokers.get(request.broker_id)
            decision = brokers.register_broker(
                image,
                request,
                cluster_id=self._cluster_id,
                next_offset=active.next_offset,
                may_be_alive=known is not None and self._may_live(known, request, connection, refused),
                kraft_version=active.kraft_version,
                defaults=self.defaults(),
            )
            if decision.records:
                broker = BrokerLife(request.broker_id, decision.response.broker_epoch)
                active.contacts.registered(broker, active.next_offset + len(decision.records) - 1)
            return decision

        return await active.submit(decide)

    async def _refused(
        self, request: BrokerRegistrationRequest, connection: ClientConnection | None
    ) -> BrokerLife | None:
        """The incarnation that holds the id, if its listener was dialled and refused the connection."""
        known = self._active.decided.brokers.get(request.broker_id)
        if known is None or known.incarnation_id == request.incarnation_id or not self._active.is_active:
            return None
        watch = self._watching(connection)
        if watch is None or self._liveness(known, request, connection) is not Liveness.GONE_IF_REFUSED:
            return None
        return BrokerLife.of(known) if await watch.is_refused(known) else None

    def _watching(self, connection: ClientConnection | None) -> BrokerWatch | None:
        if self._watch is None and connection is not None and self._make_watch is not None:
            self._watch = self._make_watch()
        return self._watch

    def _may_live(
        self,
        known: BrokerImage,
        request: BrokerRegistrationRequest,
        connection: ClientConnection | None,
        refused: BrokerLife | None,
    ) -> bool:
        state = self._liveness(known, request, connection)
        if state is Liveness.GONE_IF_REFUSED:
            return refused != BrokerLife.of(known)
        return state is Liveness.MAY_LIVE

    def _liveness(
        self, known: BrokerImage, request: BrokerRegistrationRequest, connection: ClientConnection | None
    ) -> Liveness:
        watch = self._watching(connection)
        if watch is None:
            return Liveness.GONE
        now = self._clock.monotonic()
        contact = self._active.contacts.last(BrokerLife.of(known))
        if contact is None and not known.fenced:
            contact = Contact(now, UNKNOWN_OFFSET)  # its session is about to be inherited
        return liveness(
            contact,
            dialled_addresses(known, watch.inter_broker_listener),
            request.listeners,
            is_here=connection is None,
            now=now,
            session_s=watch.session_s,
        )

    # --- heartbeats

    async def heartbeat(
        self, request: BrokerHeartbeatRequest, connection: ClientConnection | None
    ) -> BrokerHeartbeatResponse:
        """`connection` is the connection of the heartbeat, None for one from this process."""
        active, contacts = self._active, self._active.contacts
        broker = BrokerLife(request.broker_id, request.broker_epoch)
        known = active.decided.brokers.get(request.broker_id)
        if known is not None and known.epoch == request.broker_epoch:
            # the contact counts at once; the rest is decided in the order of the commands
            self._hear(broker, request.current_metadata_offset, connection)

        def decide(image: ClusterImage) -> Decision[BrokerHeartbeatResponse]:
            decision = brokers.heartbeat(
                image,
                request,
                registered_at=contacts.registered_at(broker),
                others_have_seen_it_go=contacts.have_seen_shutdown(image, broker),
                defaults=self.defaults(),
            )
            registered = image.brokers.get(request.broker_id)
            is_first = registered is not None and not registered.in_controlled_shutdown
            if request.want_shut_down and decision.records and is_first:
                contacts.began_shutdown(broker, active.next_offset + len(decision.records) - 1)
            return decision

        return await active.submit(decide)

    def _hear(self, broker: BrokerLife, metadata_offset: int, connection: ClientConnection | None) -> None:
        contacts = self._active.contacts
        last = contacts.last(broker)
        carrier = OWN_PROCESS if connection is None else connection
        contacts.heard(broker, self._clock.monotonic(), metadata_offset, carrier)
        is_new = last is None or last.carrier is not carrier
        watch = self._watching(connection)
        if is_new and connection is not None and watch is not None:
            connection.when_closed(partial(watch.closed, broker, connection))
