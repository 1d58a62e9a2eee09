"""The settings of a producer, and which of them go together."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client.accumulator import AccumulatorConfig
from barnabas.client.cluster import ClientConfig
from barnabas.records.compression import Codec

ALL = -1
MAX_IN_FLIGHT_NUMBERED = 5


class ProducerConfig(NamedTuple):
    """Settings of a producer; defaults as Kafka's."""

    acks: int = ALL  # ALL, 1 (the leader alone) or 0 (no response)
    idempotence: bool = True  # no duplicates and no reordering by retries; needs acks=ALL
    compression: Codec = Codec.NONE
    batch_bytes: int = 16384  # of records before compression
    linger_ms: float = 5.0  # how long a batch that is not full waits for more
    max_in_flight: int = 5  # requests to a broker, and batches of a partition
    max_request_bytes: int = 1024 * 1024
    buffer_bytes: int = 32 * 1024 * 1024  # for records that are not acknowledged yet
    max_block_ms: int = 60_000  # how long `send` may wait for metadata or memory
    delivery_timeout_ms: int = 120_000  # from `send` to acknowledgement, retries included
    transactional_id: str | None = None  # with one, everything is sent in transactions
    transaction_timeout_ms: int = 60_000  # after which the coordinator aborts an open transaction
    client: ClientConfig = ClientConfig()

    def check(self) -> None:
        """Raise ValueError for settings that contradict each other."""
        if self.acks not in (ALL, 0, 1):
            raise ValueError(f"acks={self.acks}: must be ALL (-1), 1 or 0")
        if self.max_in_flight < 1:
            raise ValueError(f"max_in_flight={self.max_in_flight}: must be at least 1")
        if self.idempotence and self.acks != ALL:
            raise ValueError("idempotence needs acks=ALL; set idempotence=False for less")
        if self.idempotence and self.max_in_flight > MAX_IN_FLIGHT_NUMBERED:
            raise ValueError(f"idempotence allows max_in_flight up to {MAX_IN_FLIGHT_NUMBERED}")
        if self.transactional_id is not None and not (self.transactional_id and self.idempotence):
            raise ValueError("a transactional_id must not be empty, and needs idempotence")
        if self.transaction_timeout_ms < 1:
            raise ValueError(f"transaction_timeout_ms={self.transaction_timeout_ms}: must be at least 1")


def accumulator_config(config: ProducerConfig) -> AccumulatorConfig:
    """The settings of the accumulator."""
    return AccumulatorConfig(
        batch_bytes=config.batch_bytes,
        linger_s=config.linger_ms / 1000,
        codec=config.compression,
        max_in_flight=config.max_in_flight,
        delivery_timeout_s=config.delivery_timeout_ms / 1000,
        buffer_bytes=config.buffer_bytes,
        is_idempotent=config.idempotence,
        is_transactional=config.transactional_id is not None,
    )
