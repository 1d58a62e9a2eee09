"""What a drill shows when all is well (sim/cluster/drill.py).

A broker whose process dies is fenced within `FENCED_S`, and another node leads within `LED_S` where it led.
That is by the socket; where a dial to the broker's listener was refused although it lived, its controller may
have learnt that this proves nothing, and only its session counts. A broker that is stopped is let go first,
within `STOPPED_S`: when its process ends it is fenced, and leads nothing. Nobody takes the id of a broker
that lives, or sends heartbeats for it in an earlier epoch. And then all is whole again.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.sim.checkers.violation import Violation
from barnabas.sim.cluster.events import BrokerSeen, Drill, ImageSeen, Led, LogSeen, Superseded
from barnabas.sim.history import Fault, History, Started

NAME = "drill"
FENCED_S = 2.0
LED_S = 1.5
STOPPED_S = 8.0
ANSWERS = {"heartbeat": "STALE_BROKER_EPOCH", "registration": "DUPLICATE_BROKER_REGISTRATION"}


def check_drill(history: History) -> list[Violation]:
    began = next((each for each in history.of(Drill)), None)
    if began is None:
        return []
    if began.what == "newcomer":
        return list(_came(history, began))
    if not any(each.what == "over" for each in history.of(Drill)):
        return [Violation(NAME, began.at, f"node {began.node}: all is not well again after its {began.what}")]
    return list(_killed(history, began) if began.what == "kill" else _stopped(history, began))


def check_superseded(history: History) -> list[Violation]:
    """No broker is replaced by another one: every node has its own id, and newcomers are refused."""
    what = "broker {} stops, because another one has registered under its id"
    return [Violation("superseded", each.at, what.format(each.node)) for each in history.of(Superseded)]


def _came(history: History, began: Drill) -> Iterator[Violation]:
    answers = {each.what: each for each in history.of(Drill)}
    for what, right in ANSWERS.items():
        answer = answers.get(what)
        if answer is None:
            yield Violation(NAME, began.at, f"the {what} of a newcomer is never answered")
        elif answer.error != right:
            said = f"the {what} of a newcomer with the id of broker {began.node}, which lives, is answered by"
            yield Violation(NAME, answer.at, f"{said} {answer.error}")


def _killed(history: History, began: Drill) -> Iterator[Violation]:
    leaders = [each for each in history.of(Led) if each.at <= began.at]
    if leaders and leaders[-1].node == began.node:
        led_at = next((each.at for each in history.of(Led) if each.at > began.at), float("inf"))
        if led_at > began.at + LED_S:
            late_at = began.at + LED_S
            yield Violation(NAME, late_at, f"node {began.node} led and is killed: nobody else leads in time")
    if _broker(_image(history, began.at), began.node) is None or _was_refused(history, began):
        return
    for image in history.of(ImageSeen):
        if began.at < image.at <= began.at + FENCED_S:
            broker = _broker(image, began.node)
            if broker is None or broker.is_fenced:
                return
    late_at = began.at + FENCED_S
    yield Violation(NAME, late_at, f"broker {began.node} is killed, and not fenced {FENCED_S:g} s later")


def _was_refused(history: History, began: Drill) -> bool:
    """Whether dials were refused to some node that lived, in the present life of the one that is killed."""
    started = (each for each in history.of(Started) if each.node == began.node and each.at <= began.at)
    since = max((each.at for each in started), default=0.0)
    return any(each.kind == "dials-refused" and each.at >= since - 10 for each in history.of(Fault))


def _stopped(history: History, began: Drill) -> Iterator[Violation]:
    if _broker(_image(history, began.at), began.node) is None:
        return
    end = next((each for each in history.of(LogSeen) if each.node == began.node and each.at > began.at), None)
    if end is None or end.at > began.at + STOPPED_S:
        late_at = began.at + STOPPED_S
        yield Violation(NAME, late_at, f"broker {began.node} is stopped, and goes on {STOPPED_S:g} s later")
        return
    image = _image(history, end.at)
    broker = _broker(image, began.node)
    if broker is not None and not broker.is_fenced:
        yield Violation(NAME, end.at, f"broker {began.node} has stopped, and is not fenced")
    led = [topic.name for topic in image.topics if began.node in topic.leaders]
    if led:
        yield Violation(NAME, end.at, f"broker {began.node} has stopped, and leads {', '.join(led)}")


def _image(history: History, at: float) -> ImageSeen:
    """The latest that was published by then."""
    empty = ImageSeen(0.0, 0, -1, -1, "", (), ())
    return max(
        (each for each in history.of(ImageSeen) if each.at <= at), key=lambda each: each.offset, default=empty
    )


def _broker(image: ImageSeen, node: int) -> BrokerSeen | None:
    return next((each for each in image.brokers if each.id == node), None)
