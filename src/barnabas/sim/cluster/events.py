"""What happens in a simulated cluster, beside what happens in every simulation (history.py).

Nodes are watched from outside: what they publish as the metadata, that they write as leaders, and what is in
their metadata logs on the disk. Admin clients tell what they asked and what they were answered. `life` counts
the processes of a node.
"""

from __future__ import annotations

from typing import NamedTuple

# the error of an answer that leaves open whether something was done: none came, or the broker does not know
OPEN = "open"
DONE = ""
DRILLS = ("kill", "stop", "newcomer")


class BrokerSeen(NamedTuple):
    """A registered broker in an image."""

    id: int
    epoch: int
    is_fenced: bool
    is_leaving: bool  # in controlled shutdown

    @property
    def is_active(self) -> bool:
        return not self.is_fenced and not self.is_leaving


class TopicSeen(NamedTuple):
    """A topic in an image: the leader of each partition, and the settings that were altered."""

    name: str
    topic_id: str
    leaders: tuple[int, ...]
    replicas: tuple[tuple[int, ...], ...]
    configs: tuple[tuple[str, str], ...]


class ImageSeen(NamedTuple):
    """The contents of the metadata at an offset, as the first node has published it."""

    at: float
    node: int
    offset: int
    epoch: int
    digest: str
    brokers: tuple[BrokerSeen, ...]
    topics: tuple[TopicSeen, ...]


class Published(NamedTuple):
    """A node's services see the metadata up to that offset: so all below it is committed."""

    at: float
    node: int
    life: int
    offset: int
    epoch: int
    digest: str


class Led(NamedTuple):
    """A node writes to the metadata log as the leader of an epoch, for the first time in this life."""

    at: float
    node: int
    life: int
    epoch: int


class BatchSeen(NamedTuple):
    """A batch of the metadata log as it stands on a disk."""

    base_offset: int
    end_offset: int
    epoch: int
    crc: int


class LogSeen(NamedTuple):
    """The metadata log on a node's disk: after the end of a process, or at the end of all. `committed` is the
    highest offset that the node has published in that life; -1: none."""

    at: float
    node: int
    life: int
    committed: int
    batches: tuple[BatchSeen, ...]


class LeaderLog(NamedTuple):
    """The metadata log on the disk of a node that has just begun to lead an epoch."""

    at: float
    node: int
    life: int
    epoch: int
    batches: tuple[BatchSeen, ...]


class Reached(NamedTuple):
    """Something that seeds are to come across: a truncation, a snapshot that was loaded ..."""

    at: float
    node: int
    what: str


class Superseded(NamedTuple):
    """A broker stops: the controller has told it that another one has registered under its id."""

    at: float
    node: int


class Asked(NamedTuple):
    """An admin asks a broker for a change: "create", "delete", "partitions", "config" of a topic. `value` is
    the number of partitions, or what the setting is to be."""

    at: float
    number: int
    client: str
    broker: str
    what: str
    topic: str
    value: str


class Answered(NamedTuple):
    """The answer: DONE, OPEN, or the name of an error. `topic_id` is that of a topic that was created.

    `may_be_of_another` is true if the client knew other brokers in the end: when it repeated the request, one
    of these may have answered.
    """

    at: float
    number: int
    error: str
    topic_id: str = ""
    may_be_of_another: bool = False


class TopicRead(NamedTuple):
    """A topic in a broker's answer."""

    name: str
    topic_id: str
    partitions: int


class MetadataRead(NamedTuple):
    """What a broker told of the cluster: the brokers, and topics."""

    at: float
    asked_at: float
    client: str
    broker: str
    brokers: tuple[int, ...]
    topics: tuple[TopicRead, ...]


class ConfigRead(NamedTuple):
    """What a broker told of a topic's setting; "" where it is not set for the topic."""

    at: float
    asked_at: float
    client: str
    broker: str
    topic: str
    value: str


class ProducerIdGiven(NamedTuple):
    at: float
    broker: str
    producer_id: int
    epoch: int


class VoterChanged(NamedTuple):
    """An operator had a voter "added" or "removed"; `error` is "" where that was answered well."""

    at: float
    what: str
    voter: int
    error: str


class Calm(NamedTuple):
    """After the faults: something that has to come about has, at that broker or everywhere ("")."""

    at: float
    what: str
    broker: str = ""


class Drill(NamedTuple):
    """When all is well a node is told to "stop", or killed ("kill"), and then all is "over"; or there is a
    "newcomer" with the id of that broker, and its "heartbeat" and "registration" are answered."""

    at: float
    what: str
    node: int
    error: str = ""


ClusterNodeEvent = ImageSeen | Published | Led | LogSeen | LeaderLog | Reached | Superseded
ClusterEvent = (
    ClusterNodeEvent
    | Asked
    | Answered
    | MetadataRead
    | ConfigRead
    | ProducerIdGiven
    | VoterChanged
    | Calm
    | Drill
)
