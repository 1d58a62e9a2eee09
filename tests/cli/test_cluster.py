"""`barnabas cluster`, on Barnabas and on Apache Kafka."""

from __future__ import annotations

import asyncio
import json

import pytest

from barnabas.client.admin import Admin
from tests.cli.running import Commands, until


def test_the_cluster_is_described_to_machines(anywhere: Commands) -> None:
    anywhere.ok("topic", "create", "d-topic", "--partitions", 2)
    cluster = json.loads(anywhere.ok("cluster", "describe", "--json"))
    host, port = anywhere.bootstrap.split(":")
    (broker,) = cluster["brokers"]
    assert (broker["id"], broker["host"], broker["port"], broker["rack"]) == (1, host, int(port), None)
    assert (broker["fenced"], broker["answers"]) == (False, True)
    assert broker["leaders"] == broker["replicas"] == cluster["partitions"]["total"] >= 2
    assert broker["bytes"] >= 0
    assert cluster["partitions"]["under_replicated"] == cluster["partitions"]["offline"] == 0
    assert len(cluster["cluster_id"]) == 22
    assert cluster["quorum"]["leader_id"] == 1
    assert [voter["id"] for voter in cluster["quorum"]["voters"]] == [1]
    levels = {feature["feature"]: feature["level"] for feature in cluster["features"]}
    assert levels["metadata.version"] == 30
    (directory,) = cluster["log_dirs"]
    assert (directory["broker"], directory["error"]) == (1, None)

    def are_there() -> bool:  # Kafka makes logs after it has told of the topic
        (directory,) = json.loads(anywhere.ok("cluster", "describe", "--json"))["log_dirs"]
        return [log["partition"] for log in directory["logs"] if log["topic"] == "d-topic"] == [0, 1]

    until(are_there)


def test_the_cluster_is_described_to_people(anywhere: Commands) -> None:
    text = anywhere.ok("cluster", "describe").decode()
    assert text.startswith("cluster ")
    rows = [line.split() for line in text.splitlines()]
    assert ["BROKER", "ADDRESS", "RACK", "LEADERS", "REPLICAS", "SIZE", "STATE"] in rows
    assert any(row[:2] == ["1", anywhere.bootstrap] for row in rows)
    assert any(row[:2] == ["1", "leader"] for row in rows)
    assert any(row[:3] == ["metadata.version", "30", "(4.3-IV0)"] for row in rows)
    assert "not told" not in text
    assert " 0 without a leader, 0 under min ISR" in text


def test_the_rest_is_described_where_no_controller_answers(
    anywhere: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for_ever(admin: Admin) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Admin, "describe_quorum", wait_for_ever)
    monkeypatch.setattr("barnabas.cli.cluster.QUORUM_S", 0.01)
    text = anywhere.ok("cluster", "describe").decode()
    assert "\n\nquorum: no controller answers; none leads, or the broker reaches none\n\nFEATURE" in text
    assert json.loads(anywhere.ok("cluster", "describe", "--json"))["quorum"] is None


def test_what_a_broker_speaks(anywhere: Commands) -> None:
    apis = json.loads(anywhere.ok("cluster", "describe", "--apis", "--json"))
    assert {"key": 18, "name": "ApiVersions", "first": 0, "last": 4} in apis
    names = {api["name"] for api in apis}
    assert {"Produce", "DescribeTopicPartitions"} <= names
    assert "-" not in names
