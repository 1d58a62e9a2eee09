"""What a cluster says of itself, judged: brokers, the quorum, partitions, internal topics, log directories.

Pure functions of what was described. Everything that is not as it should be comes with what to do; a cluster
in order gets a line where there is something to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from barnabas.cli.checks.findings import Finding, ok, problem, warning
from barnabas.cli.clusters.health import Health
from barnabas.cli.clusters.lag import ReplicaLag
from barnabas.cli.clusters.wholeness import silent_voters
from barnabas.cli.output import bytes_text, counted
from barnabas.client.admin import (
    Broker,
    LogDirDescription,
    QuorumDescription,
    QuorumReplica,
    TopicDescription,
)
from barnabas.client.metadata import TopicPartition
from barnabas.raft.election import majority

INTERNAL_REPLICAS = 3
SILENT_VOTER_MS = 10_000  # voters fetch all the time
_NEARLY_FULL, _FULL = 0.10, 0.03  # of a disk that is free
_SHOWN = 5


# ---- nodes -----------------------------------------------------------------------------------------------


def fenced_brokers(brokers: Iterable[Broker]) -> Iterator[Finding]:
    """Brokers that are registered and do not take part."""
    for broker in brokers:
        if broker.is_fenced:
            yield problem(
                f"broker {broker.node_id} at {broker.address} is fenced: it has stopped, or its heartbeats "
                "do not reach the active controller",
                "start it, or see its log and the network if it runs; one that is gone for good is "
                "unregistered (`barnabas up remove ID`, or kafka-cluster.sh unregister)",
            )


def quorum_findings(quorum: QuorumDescription | None, *, is_answered: bool) -> Iterator[Finding]:
    """The controllers: a leader, a majority, and none left behind."""
    if quorum is None:
        if not is_answered:
            yield problem(
                "no controller answers: fewer than a majority of the voters run, or they do not reach each "
                "other; what is led is served, and nothing of the metadata can change",
                "start voters, with their directories, until a majority runs; see their logs",
            )
        return
    if quorum.leader_id < 0:
        yield problem("no controller leads the quorum", "see that most voters run and reach each other")
        return
    now_ms = max((each.last_fetch_timestamp_ms or 0 for each in quorum.voters), default=0)
    silent = silent_voters(quorum, SILENT_VOTER_MS)
    left, needed = len(quorum.voters) - len(silent), majority(len(quorum.voters))
    for each in silent:
        yield problem(
            f"controller {each.node_id} has not fetched {_age(each, now_ms)}: {left} of "
            f"{len(quorum.voters)} voters are left, and {needed} are needed",
            "start it, or see its log and the network; a voter whose disk is lost is replaced: "
            "docs/cluster.md, Voters added and replaced",
        )
    for each in quorum.voters:
        behind = quorum.high_watermark - each.log_end_offset
        if each not in silent and behind > 0:
            yield warning(
                f"controller {each.node_id} lacks {behind:,} committed records of the metadata",
                "look again: it should catch up within seconds; if not, see its log, its load and its disk",
            )
    yield from _size_of_quorum(quorum, silent)


def _age(voter: QuorumReplica, now_ms: int) -> str:
    if voter.last_fetch_timestamp_ms is None:
        return "since the leader was elected"
    return f"for {(now_ms - voter.last_fetch_timestamp_ms) / 1000:.0f} s"


def _size_of_quorum(quorum: QuorumDescription, silent: Sequence[QuorumReplica]) -> Iterator[Finding]:
    count = len(quorum.voters)
    if count == 2:
        yield warning(
            "the quorum has two voters, and needs both", "add a third: docs/cluster.md, or `barnabas up add`"
        )
    elif count > 2 and not silent:
        yield ok(
            f"controller {quorum.leader_id} leads a quorum of {count}, of which {majority(count)} are needed"
        )


# ---- partitions ------------------------------------------------------------------------------------------


def partition_findings(
    topics: Mapping[str, TopicDescription],
    every: Sequence[Health],
    lags: Mapping[TopicPartition, Sequence[ReplicaLag]],
    brokers: Sequence[Broker],
) -> Iterator[Finding]:
    """Partitions that nobody leads, that are refused writes, that lack replicas, or are led elsewhere."""
    yield ok(f"{counted(len(topics), 'topic')}, {counted(len(every), 'partition')}")
    offline = [each for each in every if each.is_offline]
    short = [each for each in every if each.is_under_min and not each.is_offline]
    lacking = [each for each in every if each.is_under_replicated and not each.is_offline]
    if offline:
        yield problem(
            f"no leader of {counted(len(offline), 'partition')}: {_some(offline)}", _who_may_lead(offline)
        )
    if short:
        yield problem(
            f"{counted(len(short), 'partition')} under min.insync.replicas, so acks=all is refused: "
            f"{_some(short)}",
            f"bring back {_missing(short)}; the partition is written again when enough are in sync",
        )
    if lacking:
        yield warning(
            f"{counted(len(lacking), 'partition')} under-replicated: {_some(lacking)}",
            f"see that {_missing(lacking)} runs and keeps up",
        )
    yield from _lagging(lags)
    moving = [each for each in every if each.is_moving]
    if moving:
        yield ok(f"{counted(len(moving), 'partition')} on the way to other brokers: {_some(moving)}")
    yield from _led_elsewhere(every)
    if every and not offline and not lacking and not short:
        yield ok("every partition has a leader, and all its replicas are in sync")
    yield from _internal_topics(topics, brokers)


def _some(found: Sequence[Health]) -> str:
    names = [str(each.at) for each in found]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _missing(found: Iterable[Health]) -> str:
    """The brokers that are not in sync, with the most partitions first."""
    counts: dict[int, int] = {}
    for each in found:
        for broker in set(each.partition.replicas) - set(each.partition.in_sync):
            counts[broker] = counts.get(broker, 0) + 1
    ids = sorted(counts, key=lambda broker: (-counts[broker], broker))
    return f"broker {', '.join(map(str, ids))}"


def _who_may_lead(offline: Sequence[Health]) -> str:
    """Starting which brokers brings leaders without loss."""
    wanted: set[int] = set()
    for each in offline:
        partition = each.partition
        wanted |= set(partition.in_sync) or set(partition.eligible or ()) or set(partition.replicas)
    others = {broker for each in offline for broker in each.partition.replicas} - wanted
    advice = f"start broker {', '.join(map(str, sorted(wanted)))}: what is there is whole"
    if others:
        advice += (
            ". Only if that is lost for good, elect another replica with kafka-leader-election.sh "
            "--election-type unclean, which loses records"
        )
    return advice


def _lagging(lags: Mapping[TopicPartition, Sequence[ReplicaLag]]) -> Iterator[Finding]:
    behind = [(lag.records or 0, at, lag) for at, found in lags.items() for lag in found if lag.records]
    behind.sort(key=lambda each: (-each[0], each[1]))
    for _, at, lag in behind[:_SHOWN]:
        age = "" if lag.seconds is None else f", the first of which is {lag.seconds:.0f} s old"
        yield warning(
            f"follower {lag.broker} of {at} lacks {lag.records:,} records{age}",
            f"look at the load, the disk and the log of broker {lag.broker}; it is in sync again by itself "
            "when it has them",
        )


def _led_elsewhere(every: Iterable[Health]) -> Iterator[Finding]:
    count = sum(
        not each.is_offline
        and bool(each.partition.replicas)
        and each.partition.leader != each.partition.replicas[0]
        for each in every
    )
    if count:
        yield warning(
            f"{counted(count, 'partition')} not led by the preferred broker",
            "they go back by themselves within auto.leader.rebalance; or elect preferred leaders",
        )


def _internal_topics(topics: Mapping[str, TopicDescription], brokers: Sequence[Broker]) -> Iterator[Finding]:
    wanted = min(INTERNAL_REPLICAS, len(brokers))
    for name, topic in sorted(topics.items()):
        least = min((len(each.replicas) for each in topic.partitions), default=wanted)
        if topic.is_internal and least < wanted:
            yield warning(
                f"{name} has partitions with {counted(least, 'replica')}: groups or transactions stop with "
                "the broker that has them",
                "`barnabas cluster grow-internal` adds replicas",
            )


# ---- log directories -------------------------------------------------------------------------------------


def log_dir_findings(found: Mapping[int, Mapping[str, LogDirDescription]]) -> Iterator[Finding]:
    """Directories that cannot be used, and disks that are full or soon will be."""
    for broker, directories in sorted(found.items()):
        for path, each in sorted(directories.items()):
            if each.error is not None:
                yield problem(
                    f"broker {broker} cannot use its log directory {path}: {each.error.name}",
                    "mend or replace the disk and restart the broker: it fetches its replicas again; "
                    "partitions with one replica there are back only with the old disk",
                )
            else:
                yield from _room(broker, path, each)


def _room(broker: int, path: str, each: LogDirDescription) -> Iterator[Finding]:
    if not each.total_bytes or each.usable_bytes is None:
        return
    share = each.usable_bytes / each.total_bytes
    if share >= _NEARLY_FULL:
        return
    make = problem if share < _FULL else warning
    yield make(
        f"{bytes_text(each.usable_bytes)} of {bytes_text(each.total_bytes)} ({share:.0%}) are free under "
        f"{path} of broker {broker}",
        "make room, before writes are refused: shorter retention (retention.ms, retention.bytes), "
        "`barnabas topic trim`, or partitions moved to other brokers",
    )
