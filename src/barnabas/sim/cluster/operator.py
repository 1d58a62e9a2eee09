"""An operator who removes voters of the quorum and adds them again, through any broker.

Only where the voters stand in the log. Two voters are always left. An answer that does not come, or an error,
is left alone: the next look tells which voters there are.
"""

from __future__ import annotations

from barnabas.client.admin import Admin, QuorumDescription
from barnabas.client.errors import wire_error_of
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.quorum_nodes import Listener
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from barnabas.sim.chance import happens, pick
from barnabas.sim.cluster.events import VoterChanged
from barnabas.sim.cluster.plan import CLUSTER_ID, CONTROLLER, CONTROLLER_PORT, directory_of, host_of
from barnabas.sim.cluster.workload import Brokers, addresses
from barnabas.sim.workload.client import Client

PAUSE_S = 4.0
LEFT = 2  # voters that are never removed
TIMEOUT_MS = 3_000
BACK = 0.6  # how often a voter that is missing comes back


async def operate(client: Client) -> None:
    """Change the voters now and then, until asked to stop."""
    async with Brokers(client) as brokers:
        while not client.stopping.is_set():
            await client.pause(PAUSE_S)
            address = pick(client.random, addresses(client.world))
            admin = await brokers.at(address)

            async def step(admin: Admin = admin) -> None:
                await _change(client, admin, await admin.describe_quorum())

            await client.go_on("changing voters", step)


async def _change(client: Client, admin: Admin, quorum: QuorumDescription) -> None:
    plan = client.world.scenario.cluster
    assert plan is not None
    present = [each.node_id for each in quorum.voters]
    missing = [each for each in plan.voters if each not in present]
    if missing and (len(present) <= LEFT or happens(client.random, BACK)):
        node = pick(client.random, missing)
        error = await _add(admin, node)
        client.history.add(VoterChanged(client.now, "added", node, error))
    elif len(present) > LEFT:
        node = pick(client.random, present)
        error = await _remove(admin, node)
        client.history.add(VoterChanged(client.now, "removed", node, error))


async def _add(admin: Admin, node: int) -> str:
    request = AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        timeout_ms=TIMEOUT_MS,
        voter_id=node,
        voter_directory_id=directory_of(node).bytes,
        listeners=[Listener(name=CONTROLLER, host=host_of(node), port=CONTROLLER_PORT)],
    )
    answer = await admin.cluster.ask(request, AddRaftVoterResponse)
    return _name(answer.error_code)


async def _remove(admin: Admin, node: int) -> str:
    request = RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=node, voter_directory_id=directory_of(node).bytes
    )
    answer = await admin.cluster.ask(request, RemoveRaftVoterResponse)
    return _name(answer.error_code)


def _name(error_code: int) -> str:
    return wire_error_of(error_code).name if error_code else ""
