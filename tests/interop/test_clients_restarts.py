"""The broker stops, dies and comes back while clients write and read: they go on as if it had not.

What was acknowledged is read, once and in order, by readers who were there all the time and by one who comes
afterwards. Producers are idempotent: what they send again is not there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.support.clients import CLIENTS, create_topic, until
from tests.support.targets import Target
from tests.support.writers import (
    PATIENCE_S,
    AioKafkaWriter,
    ConfluentWriter,
    KafkaPythonWriter,
    Reader,
    Writer,
)

RESTARTS = 3
BETWEEN = 300  # messages acknowledged from one restart to the next


@pytest.mark.usefixtures("sockets_of_kafka_python_are_closed")
@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("kind", [ConfluentWriter, AioKafkaWriter, KafkaPythonWriter])
def test_clients_go_on_when_the_broker_comes_back(
    kind: type[Writer], how: str, new_target: Callable[[Mapping[str, str]], Target], topic: str
) -> None:
    target = new_target({})
    create_topic(target.bootstrap, topic)
    with kind(target.bootstrap, topic) as writer:
        with Reader(target.bootstrap, topic) as reader:
            for _ in range(RESTARTS):
                wanted = writer.acknowledged + BETWEEN

                def moved_on(wanted: int = wanted) -> bool:
                    assert not writer.failures
                    return writer.acknowledged >= wanted and len(reader.values) >= wanted - BETWEEN

                until(moved_on, f"{BETWEEN} more messages", PATIENCE_S)
                getattr(target, how)()
                target.start()
            until(moved_on, "progress after the last restart", PATIENCE_S)
            writer.finish()
            assert not writer.failures
            count = writer.acknowledged
            until(lambda: len(reader.values) >= count, f"{count} messages read", PATIENCE_S)
        found = CLIENTS[0].consume(target.bootstrap, topic, count)
        end = CLIENTS[0].offsets(target.bootstrap, topic).end
    assert [int(one.value or b"") for one in found] == list(range(count))
    assert reader.values == list(range(count))
    assert end == count
