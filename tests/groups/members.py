"""Members of classic groups and their coordinator, without a broker: requests by hand, in virtual time.

Every reply is watched: none may be answered twice.
"""

from __future__ import annotations

from typing import Any

from barnabas.coordination.effects import Caller, Effects
from barnabas.core.random import SeededRandom
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.settings import GroupSettings
from barnabas.groups.shard import GroupShard
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.schema import Message
from tests.groups.offset_log import Shards

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3000
RANGE = (("range", b"r"),)
Protocols = tuple[tuple[str, bytes], ...]


class Pending:
    """A request that was sent: its answer, once it came."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.answers: list[Any] = []

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    @property
    def answer(self) -> Any:
        assert self.answers, f"{self.what} has no answer yet"
        return self.answers[0]

    @property
    def error_code(self) -> int:
        code: int = self.answer.error_code
        return code


class Groups(Shards):
    """A shard of groups with its log, and whoever asks."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=DELAY_MS)
        self.asked: list[Pending] = []
        self.random = SeededRandom(1)  # of all its lives: no id comes twice
        super().__init__()

    def _new(self) -> GroupShard:
        return GroupShard(lambda: self.settings, self.random)

    def _carry_out(self, effects: Effects) -> None:
        super()._carry_out(effects)
        for reply, response in effects.replies:
            if isinstance(reply, Pending):
                reply.answers.append(response)
                assert len(reply.answers) == 1, f"{reply.what} was answered twice: {reply.answers}"

    def reload(self) -> None:
        """The shard is read from its log, as after a crash; whoever waited is gone."""
        self.shard = self.replayed()
        self.asked = [one for one in self.asked if one.is_answered]
        self._carry_out(self.shard.loaded(self.now))

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    # ---- requests

    def join(
        self,
        member: str = "",
        *,
        group: str = "g",
        protocols: Protocols = RANGE,
        instance: str | None = None,
        kind: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
    ) -> Pending:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        return self._send("join", request, version)

    def sync(
        self,
        member: str,
        generation: int,
        parts: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = None,
    ) -> Pending:
        assignments = [
            SyncGroupRequestAssignment(member_id=to, assignment=part) for to, part in (parts or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            protocol_type=kind,
            protocol_name=protocol,
            assignments=assignments,
        )
        return self._send("sync", request, 5)

    def heartbeat(
        self, member: str, generation: int, *, group: str = "g", instance: str | None = None
    ) -> int:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        return self._send("heartbeat", request, 4).error_code

    def leave(self, *members: tuple[str, str | None] | str, group: str = "g") -> list[int]:
        """The error code of each member that was to leave, by id or by id and instance."""
        identities = [
            MemberIdentity(member_id=one, group_instance_id=None)
            if isinstance(one, str)
            else MemberIdentity(member_id=one[0], group_instance_id=one[1])
            for one in members
        ]
        request = LeaveGroupRequest(group_id=group, members=identities, member_id="")
        answer = self._send("leave", request, 5).answer
        assert answer.error_code == 0
        return [one.error_code for one in answer.members]

    def _send(self, name: str, request: Message, version: int) -> Pending:
        pending = Pending(f"{name} {request}")
        self.asked.append(pending)
        caller = Caller(version, "client", "/10.0.0.1")
        effects = getattr(self.shard, name)(request, caller, self.now, pending)
        self._carry_out(effects)
        return pending

    # ---- what most tests begin with

    def new_id(self, **wants: Any) -> str:
        """An id for a member that has yet to join with it."""
        answer = self.join(**wants).answer
        assert answer.error_code == 79
        member: str = answer.member_id
        return member

    def stable(self, *parts: bytes, **wants: Any) -> list[str]:
        """Members of the first generation, the leader first, with these parts."""
        ids = [self.new_id(**wants) for _ in parts]
        joins = [self.join(member, **wants) for member in ids]
        while not all(join.is_answered for join in joins):
            self.pass_ms(DELAY_MS)
        generation = joins[0].answer.generation_id
        group, kind = wants.get("group", "g"), wants.get("kind", "consumer")
        syncs = [self.sync(member, generation, group=group, kind=kind) for member in ids[1:]]
        handed_out = dict(zip(ids, parts, strict=True))
        syncs.append(self.sync(ids[0], generation, handed_out, group=group, kind=kind))
        assert all(sync.error_code == 0 for sync in syncs)
        return ids
