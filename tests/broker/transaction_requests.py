"""Requests of transactional producers, and of those who watch them, for the fuzzer to damage."""

from __future__ import annotations

from random import Random

from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from barnabas.protocol.schema import Message


def transactional(key: int, topic: str, partition: int, random: Random) -> Message | None:
    """A request of that API about a transaction that may be there; None where it is of another kind."""
    name = random.choice(("fuzzed-1", "fuzzed-1", "fuzzed-2", ""))
    producer_id, epoch = random.choice((-1, 0, 1, 2**62)), random.choice((-1, 0, 1, 0x7FFF))
    match key:
        case 22:
            return init_producer_id.InitProducerIdRequest(
                transactional_id=random.choice((None, name)),
                transaction_timeout_ms=random.choice((1000, 0, 2**31 - 1)),
                producer_id=random.choice((-1, producer_id)),
                producer_epoch=random.choice((-1, epoch)),
            )
        case 24:
            topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[partition])]
            one = add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=random.random() < 0.5,
                topics=topics,
            )
            return add_partitions_to_txn.AddPartitionsToTxnRequest(
                transactions=[one],
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        case 25:
            return add_offsets_to_txn.AddOffsetsToTxnRequest(
                transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="group"
            )
        case 26:
            return end_txn.EndTxnRequest(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=random.random() < 0.5,
            )
        case 65:
            return describe_transactions.DescribeTransactionsRequest(transactional_ids=[name, "nobody"])
        case 66:
            return list_transactions.ListTransactionsRequest(
                state_filters=random.choice(([], ["Ongoing"], ["Whatever"])),
                producer_id_filters=random.choice(([], [producer_id])),
                duration_filter=random.choice((-1, 0, 1000)),
                transactional_id_pattern=random.choice((None, "", "fuzzed-.*", "((")),
            )
    return None
