"""The same requests to Apache Kafka and to the controller: the same error for every topic."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from barnabas.controller.topics import create_topics, delete_topics
from barnabas.core.errors import WIRE_ERRORS
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.headers import begin_request, read_response_header, set_length
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.schema import NO_UUID, Message
from tests.controller.clusters import POLICY, Cluster, creation, deletion, topic
from tests.support.apache_kafka import ApacheKafka

CREATIONS = [
    creation(topic("a", 1, 1), topic("b", 3, 1), topic("a.b", 1, 1)),
    creation(topic("a", 1, 1), topic("a_b", 1, 1), topic("a-b", -1, -1)),
    creation(topic("twice", 1, 1), topic("twice", 1, 1), topic("once", 1, 1)),
    creation(*(topic(name, 1, 1) for name in ("", ".", "..", "...", "x" * 249, "x" * 250, "ä", "a b"))),
    creation(*(topic(name, 1, 1) for name in ("__cluster_metadata", "__consumer_offsets"))),
    creation(topic("p0", 0, 1), topic("p1", -1, 1), topic("p2", -2, 1)),
    creation(topic("q", 9_999, 1), topic("r", 2, 1), validate_only=True),
    creation(topic("r0", 1, 0), topic("r1", 1, -1), topic("r2", 1, 2), topic("r3", 1, -2)),
    creation(
        topic("m1", assigned={0: [1], 1: [1]}),
        topic("m2", 2, -1, assigned={0: [1]}),
        topic("m3", -1, 1, assigned={0: [1]}),
        topic("m4", assigned={0: [2]}),
        topic("m5", assigned={0: [1, 1]}),
        topic("m6", assigned={1: [1]}),
        topic("m7", assigned={0: []}),
        topic("m8", 1, 1, assigned={0: [1]}),
        topic("m9", assigned={0: [1], 1: [1, 2]}),
    ),
    creation(
        topic("c1", 1, 1, configs={"retention.ms": "5"}),
        topic("c2", 1, 1, configs={"nope": "5"}),
        topic("c3", 1, 1, configs={"retention.ms": "x"}),
        topic("c4", 1, 1, configs={"retention.ms": None}),
        topic("c5", 1, 1, configs={"cleanup.policy": "compact", "min.insync.replicas": "3"}),
        validate_only=True,
    ),
]
UNKNOWN_ID = b"x" * 16
DELETIONS = [
    deletion("b", "nope", UNKNOWN_ID, ""),
    deletion(states=[DeleteTopicState(name="a", topic_id=UNKNOWN_ID)]),
    deletion(states=[DeleteTopicState(name=None, topic_id=NO_UUID)]),
    deletion("a", "a"),
    deletion("__cluster_metadata", "__consumer_offsets"),
]


def ask(port: int, request: Message, answer: type[Message], version: int) -> Any:
    """One request to a broker over a connection of its own."""
    frame = begin_request(type(request).__key__, version, 1, "test", flexible=True)
    frame += encode(request, version)
    set_length(frame)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
        connection.makefile("rb") as file,
    ):
        connection.sendall(frame)
        (size,) = struct.unpack(">i", file.read(4))
        response = memoryview(file.read(size))
    _, position = read_response_header(response, type(request).__key__, flexible=True)
    return decode(answer, version, response, position)


def created(response: CreateTopicsResponse) -> dict[str, tuple[str, int, int]]:
    return {
        each.name: (WIRE_ERRORS[each.error_code].name, each.num_partitions, each.replication_factor)
        for each in response.topics
    }


def deleted(response: DeleteTopicsResponse) -> list[tuple[str | None, str]]:
    answers = [(each.name, WIRE_ERRORS[each.error_code].name) for each in response.responses]
    return sorted(answers, key=repr)


@pytest.mark.java
def test_the_controller_answers_as_kafka_does(tmp_path: Path) -> None:
    cluster = Cluster(1)
    with ApacheKafka(tmp_path, settings={"num.partitions": str(POLICY.num_partitions)}) as kafka:
        for creation_request in CREATIONS:
            assert isinstance(creation_request, CreateTopicsRequest)
            theirs = ask(kafka.port, creation_request, CreateTopicsResponse, 7)
            ours = cluster.carry_out(create_topics(cluster.image, creation_request, cluster.random, POLICY))
            assert created(ours) == created(theirs)
        for deletion_request in DELETIONS:
            assert isinstance(deletion_request, DeleteTopicsRequest)
            theirs = ask(kafka.port, deletion_request, DeleteTopicsResponse, 6)
            assert deleted(cluster.carry_out(delete_topics(cluster.image, deletion_request))) == deleted(
                theirs
            )
