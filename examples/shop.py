"""A shop's day, made up: orders and their payments as JSON, some of them poison, and what must come of them.

One seed decides everything, so what a pipeline has to deliver is known before it starts (`Shop`). Records are
listed in the order in which they are sent; a record's timestamp says when that was, its field `at` when it
happened: a little before, or, for the late ones, hours.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

ORDERS, PAYMENTS = "orders", "payments"
BROKEN, MISTYPED, INCOMPLETE, LATE = "broken JSON", "wrong type", "field missing", "late"
POISON = (BROKEN, MISTYPED, INCOMPLETE, LATE)

CENTS = {"ink": 450, "lamp": 3900, "ledger": 1250, "letter": 120, "map": 800, "seal": 2300, "wax": 310}
METHODS = ("card", "cash", "transfer")
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
OPENING_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
DELAY_MS = 5 * MINUTE_MS  # what is sent in time is sent that soon
PAY_WITHIN_MS = 30 * MINUTE_MS  # whoever pays later has not bought anything


class Message(NamedTuple):
    """A record to be sent."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int


class Revenue(NamedTuple):
    """A line of the shop's books."""

    orders: int
    cents: int


class Shop(NamedTuple):
    """What is sent, and what must come of it."""

    messages: list[Message]
    closing: Message  # an order of the next day: with it the day is over
    poison: dict[tuple[str, bytes], str]  # by topic and value: what is wrong with it
    paid: dict[int, int]  # cents by order, where both order and payment are good and in time
    revenue: dict[tuple[str, int], Revenue]  # by product and hour (ms): all good orders

    def sent_to(self, topic: str) -> int:
        return sum(message.topic == topic for message in self.messages)


class _Event(NamedTuple):
    """An order or a payment: what is wrong with it, if anything, and when it happened and was sent."""

    wrong: str | None
    at_ms: int
    sent_ms: int


def open_shop(orders: int, seed: int = 1926) -> Shop:
    """A day with so many orders."""
    dice = random.Random(seed)
    messages: list[Message] = []
    poison: dict[tuple[str, bytes], str] = {}
    paid: dict[int, int] = {}
    count: Counter[tuple[str, int]] = Counter()
    cents: Counter[tuple[str, int]] = Counter()

    def send(topic: str, event: _Event, fields: dict[str, Any]) -> None:
        value = _spoil(json.dumps(fields), event.wrong)
        messages.append(Message(topic, b"%d" % fields["order_id"], value, event.sent_ms))
        if event.wrong is not None:
            poison[topic, value] = event.wrong

    for number in range(orders):
        order = _event(dice, OPENING_MS + number * DAY_MS // orders)
        bought = _order(dice, number, order.at_ms)
        send(ORDERS, order, bought)
        if order.wrong is None:
            place = bought["product"], order.at_ms // HOUR_MS * HOUR_MS
            count[place] += 1
            cents[place] += bought["cents"]
        for delay_ms in _payment_delays(dice):
            payment = _event(dice, order.at_ms + delay_ms)
            send(PAYMENTS, payment, _payment(dice, bought, payment.at_ms))
            if order.wrong is None and payment.wrong is None and delay_ms <= PAY_WITHIN_MS:
                paid[number] = bought["cents"]
    messages.sort(key=lambda message: message.timestamp_ms)
    revenue = {place: Revenue(count[place], cents[place]) for place in count}
    return Shop(messages, _closing(dice, orders), poison, paid, revenue)


def _event(dice: random.Random, at_ms: int) -> _Event:
    """Something that happened at that time. One in fifty is poison, one in four of these for being late."""
    wrong = dice.choice(POISON) if dice.randrange(50) == 0 else None
    delay_ms = dice.randrange(2 * HOUR_MS, 12 * HOUR_MS) if wrong == LATE else dice.randrange(DELAY_MS)
    return _Event(wrong, at_ms, at_ms + delay_ms)


def _order(dice: random.Random, number: int, at_ms: int) -> dict[str, Any]:
    product = dice.choice(list(CENTS))
    quantity = 1 + dice.randrange(5)
    return {
        "order_id": number,
        "customer": dice.randrange(10_000),
        "product": product,
        "quantity": quantity,
        "cents": quantity * CENTS[product],
        "at": _iso(at_ms),
    }


def _payment(dice: random.Random, order: dict[str, Any], at_ms: int) -> dict[str, Any]:
    return {
        "order_id": order["order_id"],
        "method": dice.choice(METHODS),
        "cents": order["cents"],
        "at": _iso(at_ms),
    }


def _payment_delays(dice: random.Random) -> Iterator[int]:
    """How long after the order it is paid: mostly soon, now and then too late, and some never."""
    fate = dice.randrange(20)
    if fate < 17:
        yield dice.randrange(PAY_WITHIN_MS)
    elif fate < 18:
        yield PAY_WITHIN_MS + MINUTE_MS + dice.randrange(PAY_WITHIN_MS)


def _spoil(text: str, wrong: str | None) -> bytes:
    """The record, made wrong in that way; it stays one of its kind, so that it is found again."""
    if wrong == BROKEN:
        text = text[: len(text) - 4]
    elif wrong == MISTYPED:
        fields = json.loads(text)
        text = json.dumps(fields | {"cents": f"{fields['cents']} or so"})
    elif wrong == INCOMPLETE:
        fields = json.loads(text)
        del fields["cents"]
        text = json.dumps(fields)
    return text.encode()


def _closing(dice: random.Random, number: int) -> Message:
    at_ms = OPENING_MS + 2 * DAY_MS
    value = json.dumps(_order(dice, number, at_ms)).encode()
    return Message(ORDERS, b"%d" % number, value, at_ms)


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
