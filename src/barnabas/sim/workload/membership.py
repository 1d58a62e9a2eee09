"""One member of a group as its own client sees it: it joins, is given partitions, and hears how that goes.

The classic protocol, eager: who joins has given up what it had. The leader spreads the partitions over the
members in the order of their ids. What a member has ends when it joins again, when it is told that it is
none, when it leaves, and by its own clock when it has heard nothing good for too long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from barnabas.protocol.schema import Message
from barnabas.sim.coordination_scenario import GroupPlan
from barnabas.sim.group_events import (
    Affirmed,
    Assigned,
    CommitDone,
    CommitRefused,
    CommitSent,
    GivenUp,
    Joined,
    Joining,
    Place,
)
from barnabas.sim.workload.client import Client
from barnabas.sim.workload.coordinators import BY_NAME, GROUP, TROUBLE, Asking, Refused, name_of

PROTOCOL_TYPE, PROTOCOL = "sim", "spread"
REBALANCE = "REBALANCE_IN_PROGRESS"
ID_REQUIRED = "MEMBER_ID_REQUIRED"
# after which a member asks to be a new one
STRANGER = ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID")
ANSWER_S = 6.0  # how much longer than the timeouts of its group one waits for an answer


class Member:
    """`places` is what it has; None: no assignment. `must_join`: a rebalance has begun."""

    def __init__(
        self, client: Client, asking: Asking, plan: GroupPlan, instance: str, places: Sequence[Place]
    ) -> None:
        self._client, self._asking, self._plan = client, asking, plan
        self._instance = instance
        self._all_places = tuple(places)
        self._lasts_s = min(plan.session_ms, plan.rebalance_ms) / 1000
        self._good_at = 0.0  # when the last request that was answered well was sent
        self._commits = 0
        self.member_id = ""
        self.generation = -1
        self.places: tuple[Place, ...] | None = None
        self.must_join = False

    # ---- joining -----------------------------------------------------------------------------------------

    async def join(self) -> tuple[Place, ...]:
        """Take part in the next generation; Refused where it is not to be."""
        joined = await self._join()
        if joined is None:
            joined = await self._join()  # now with the id it was given
        if joined is None:
            raise Refused("joining", ID_REQUIRED)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        return await self._sync(joined)

    async def _join(self) -> JoinGroupResponse | None:
        client, plan = self._client, self._plan
        self.places, self.must_join = None, False
        client.history.add(Joining(client.now, plan.name, client.name, self._instance))
        request = JoinGroupRequest(
            group_id=plan.name,
            session_timeout_ms=plan.session_ms,
            rebalance_timeout_ms=plan.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self._instance or None,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=client.name.encode())],
        )
        asked_at, wait_s = client.now, (plan.session_ms + plan.rebalance_ms) / 1000 + ANSWER_S
        answer = await self._asking.ask(GROUP, plan.name, request, JoinGroupResponse, timeout_s=wait_s)
        error = name_of(answer.error_code, "JoinGroup")
        if error == ID_REQUIRED:
            self.member_id = answer.member_id
            return None
        self._check("JoinGroup", error)
        client.history.add(
            Joined(
                client.now,
                asked_at,
                plan.name,
                client.name,
                answer.member_id,
                answer.generation_id,
                answer.leader,
                self._asking.answered_by,
            )
        )
        return answer

    async def _sync(self, joined: JoinGroupResponse) -> tuple[Place, ...]:
        client, plan = self._client, self._plan
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            spread = _spread(sorted(each.member_id for each in joined.members), self._all_places)
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=_written(places))
                for member_id, places in spread.items()
            ]
        request = SyncGroupRequest(
            group_id=plan.name,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance or None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        asked_at, wait_s = client.now, plan.rebalance_ms / 1000 + ANSWER_S
        answer = await self._asking.ask(GROUP, plan.name, request, SyncGroupResponse, timeout_s=wait_s)
        self._check("SyncGroup", name_of(answer.error_code, "SyncGroup"))
        places = _read(answer.assignment)
        self.places, self._good_at = places, asked_at
        client.history.add(
            Assigned(
                client.now,
                asked_at,
                plan.name,
                client.name,
                self.member_id,
                self._instance,
                self.generation,
                places,
                self._lasts_s,
                self._asking.answered_by,
            )
        )
        return places

    # ---- staying and going -------------------------------------------------------------------------------

    async def heartbeat(self) -> None:
        """Say that it is alive; afterwards `must_join` and `places` say how things stand."""
        client, plan = self._client, self._plan
        request = HeartbeatRequest(
            group_id=plan.name,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance or None,
        )
        asked_at = client.now
        answer = await self._asking.ask(GROUP, plan.name, request, HeartbeatResponse)
        error = name_of(answer.error_code, "Heartbeat")
        if error == REBALANCE:
            self.must_join = True
            return
        self._check("Heartbeat", error)
        self._good_at = asked_at
        who = (plan.name, client.name, self.member_id, self.generation)
        client.history.add(Affirmed(client.now, asked_at, *who, self._asking.answered_by))

    def has_run_out(self) -> bool:
        """Whether it has not been told for so long that it is a member that it may be none."""
        if self.places is not None and self._client.now > self._good_at + self._lasts_s:
            self._give_up("heard nothing for too long")
        return self.places is None

    async def leave(self) -> None:
        """Leave for good."""
        plan, member_id = self._plan, self.member_id
        self._give_up("leaves")
        self.member_id = ""
        who = MemberIdentity(member_id=member_id, group_instance_id=self._instance or None)
        request: Message = LeaveGroupRequest(group_id=plan.name, members=[who], member_id=member_id)
        await self._asking.ask(GROUP, plan.name, request, LeaveGroupResponse)

    def told(self, doing: str, error: str) -> None:
        """An answer to something that it did as a member."""
        if error == REBALANCE:
            self.must_join = True
        else:
            self._check(doing, error)

    def _check(self, doing: str, error: str) -> None:
        """Refused where there is an error; one that is no mere trouble ends what it has."""
        if not error:
            return
        if error not in TROUBLE:
            self._give_up(error)
            if error in STRANGER:
                self.member_id = ""
        raise Refused(doing, error)

    def _give_up(self, why: str) -> None:
        self.places = None
        client = self._client
        client.history.add(GivenUp(client.now, self._plan.name, client.name, why))

    # ---- offsets -----------------------------------------------------------------------------------------

    async def commit(self, positions: Mapping[Place, int], generation: int | None = None) -> None:
        """Commit how far it has come, as a member of this generation, or of another."""
        client, group = self._client, self._plan.name
        generation = self.generation if generation is None else generation
        self._commits += 1
        marks = {place: f"{client.name}/{self._commits}:{place[0]}-{place[1]}" for place in positions}
        for place, offset in positions.items():
            client.history.add(CommitSent(client.now, marks[place], group, *place, offset, generation))
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            group_instance_id=self._instance or None,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=mark
                        )
                    ],
                )
                for ((topic, partition), offset), mark in zip(positions.items(), marks.values(), strict=True)
            ],
        )
        answer = await self._asking.ask(GROUP, group, request, OffsetCommitResponse, at_most=BY_NAME)
        errors = {
            (topic.name, each.partition_index): name_of(each.error_code, "OffsetCommit")
            for topic in answer.topics
            for each in topic.partitions
        }
        for place, mark in marks.items():
            if (error := errors[place]) not in TROUBLE:  # after which nobody knows
                done = CommitDone(client.now, mark, self._asking.answered_by)
                client.history.add(CommitRefused(client.now, mark, error) if error else done)
        if generation == self.generation:
            self.told("OffsetCommit", next((error for error in errors.values() if error), ""))


def _spread(members: Sequence[str], places: Sequence[Place]) -> dict[str, list[Place]]:
    found: dict[str, list[Place]] = {member: [] for member in members}
    for index, place in enumerate(places):
        found[members[index % len(members)]].append(place)
    return found


def _written(places: Sequence[Place]) -> bytes:
    return ",".join(f"{topic}:{partition}" for topic, partition in places).encode()


def _read(assignment: bytes) -> tuple[Place, ...]:
    parts = [part.rpartition(":") for part in assignment.decode().split(",") if part]
    return tuple((topic, int(partition)) for topic, _, partition in parts)
