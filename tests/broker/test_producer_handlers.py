"""InitProducerId and FindCoordinator as clients see them."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator

import pytest

from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.testing import Broker
from tests.support.raw_client import RawClient, wait_until

LOADING, UNSUPPORTED_VERSION, INVALID_REQUEST, INVALID_TIMEOUT = 14, 35, 42, 50
GROUP, TRANSACTION, SHARE = 0, 1, 2


@pytest.fixture
def client(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(int(bootstrap.rpartition(":")[2])) as connected:
        yield connected


def _init(
    client: RawClient,
    transactional_id: str | None = None,
    *,
    version: int = 5,
    timeout_ms: int = 60_000,
    producer_id: int = -1,
    epoch: int = -1,
) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    answer = client.ask(request, version, InitProducerIdResponse)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def _id(client: RawClient, **named: int) -> int:
    """Whoever gives out ids may be loading; then one asks again."""
    found: list[int] = []

    def ask() -> bool:
        code, producer_id, epoch = _init(client, **named)  # type: ignore[arg-type]
        assert code in (0, LOADING)
        if code == 0:
            assert epoch == 0
            found.append(producer_id)
        return code == 0

    wait_until(ask, "a producer id")
    return found[0]


def test_every_call_gives_a_new_id(client: RawClient) -> None:
    ids = [_id(client, version=version) for version in range(6)]
    assert min(ids) >= 0
    assert len(set(ids)) == 6


def test_an_idempotent_producer_gets_a_new_id_whatever_it_had(client: RawClient) -> None:
    had = _id(client)
    assert _id(client, producer_id=had, epoch=3) != had
    assert _id(client, producer_id=99_999_999, epoch=0) != 99_999_999
    assert _id(client, timeout_ms=-5) != had  # timeouts are for transactions


def test_an_id_without_its_epoch_says_nothing(client: RawClient) -> None:
    assert _init(client, producer_id=7) == (INVALID_REQUEST, -1, -1)
    assert _init(client, epoch=7) == (INVALID_REQUEST, -1, -1)


def test_transactional_ids_are_checked_as_in_kafka(client: RawClient) -> None:
    assert _init(client, "") == (INVALID_REQUEST, -1, -1)
    assert _init(client, "tx", producer_id=7) == (INVALID_REQUEST, -1, -1)
    for timeout_ms in (0, -1, 900_001):
        assert _init(client, "tx", timeout_ms=timeout_ms) == (INVALID_TIMEOUT, -1, -1)


def test_ids_are_never_given_out_twice(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    with RawClient(broker.port) as client:
        first = [_id(client) for _ in range(3)]
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        assert _id(client) > max(first)


def test_while_no_ids_can_be_had_clients_try_again(
    make_broker: Callable[..., Broker], caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker()
    with RawClient(broker.port) as client:
        assert broker._memory is not None
        broker._memory.fail("append", errno.ENOSPC, path_glob="*__cluster_metadata*", times=3)
        for _ in range(3):
            assert _init(client) == (LOADING, -1, -1)
        assert _init(client) == (0, 0, 0)
    # they try again many times a second: the log says once why
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "No space left" in line


# ---- coordinators ----------------------------------------------------------------------------------------


def _find(client: RawClient, keys: list[str], kind: int, version: int) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key=keys[0] if keys else "", key_type=kind, coordinator_keys=keys)
    return client.ask(request, version, FindCoordinatorResponse)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_coordinator_of_one_group(broker: Broker, version: int) -> None:
    with RawClient(broker.port) as client:
        answer = _find(client, ["group"], GROUP, version)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "127.0.0.1", broker.port)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_the_coordinators_of_several_groups(broker: Broker, version: int) -> None:
    with RawClient(broker.port) as client:
        answer = _find(client, ["b", "a", "b"], GROUP, version)
        assert [(one.key, one.node_id, one.error_code) for one in answer.coordinators] == [
            ("b", 1, 0),
            ("a", 1, 0),
            ("b", 1, 0),
        ]
        assert _find(client, [], GROUP, version).coordinators == []


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_coordinator_of_a_transactional_id(broker: Broker, version: int) -> None:
    with RawClient(broker.port) as client:
        answer = _find(client, ["tx"], TRANSACTION, version)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "127.0.0.1", broker.port)


@pytest.mark.parametrize(
    "key", ["g", "g:t", "g:abc:0", ":HdYepxRBR76_H7w6lb8liQ:0", "g:HdYepxRBR76_H7w6lb8liQ:x"]
)
def test_a_share_must_be_named_as_one(client: RawClient, key: str) -> None:
    (found,) = _find(client, [key], SHARE, 6).coordinators
    assert (found.key, found.error_code, found.node_id) == (key, INVALID_REQUEST, -1)


def test_shares_have_no_coordinator(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        (found,) = _find(client, ["g:HdYepxRBR76_H7w6lb8liQ:0"], SHARE, 6).coordinators
    assert (found.error_code, found.node_id) == (UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize(("kind", "version"), [(7, 6), (-1, 6), (7, 3), (SHARE, 3), (SHARE, 5)])
def test_kinds_of_coordinators_that_there_are_not(client: RawClient, kind: int, version: int) -> None:
    answer = _find(client, ["g"], kind, version)
    if version < 4:
        assert (answer.error_code, answer.node_id) == (INVALID_REQUEST, -1)
    else:
        assert [(one.error_code, one.node_id) for one in answer.coordinators] == [(INVALID_REQUEST, -1)]
