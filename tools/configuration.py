"""Makes docs/configuration.md, the page of all settings: `python -m tools.configuration --write`.

What a setting is comes from the tables in core/settings; what it does here comes from the code as well. A
setting that the program asks for by name is heeded, and so is the default of a topic setting that logs heed;
one that `security.py` refuses or warns of is refused or warned of; all others have no effect, and the first
prefix in NOT_YET that fits says why. Where that is not the whole truth, NOTES has the last word. A test holds
the page to this, so whoever makes the program heed a setting writes the page anew.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from barnabas.core.settings import documentation, security
from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.client_metrics import CLIENT_METRICS
from barnabas.core.settings.definition import Setting, Update, allowed_values
from barnabas.core.settings.group import GROUP
from barnabas.core.settings.own import OWN
from barnabas.core.settings.topic import SYNONYMS, TOPIC
from barnabas.log.config import known_settings

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"


class State(IntEnum):
    """What becomes of a setting here, in the order of the page."""

    HEEDED = 0
    REFUSED = 1
    WITHOUT_EFFECT = 2


class Here(NamedTuple):
    """What becomes of a setting here, and what else there is to say of it."""

    state: State
    words: str = ""


_THROTTLES = "replication is not throttled yet"
_MEBIBYTE = "it is always 1 MiB"
_CONSUMER = "groups of the consumer protocol are not served yet"
_LOADED = "what is loaded is read in pieces of 16 KiB"
_TIERED = "there is no tiered storage yet"
_QUOTAS = "quotas are kept, and not enforced yet"

# why a setting has no effect: the first prefix that fits
NOT_YET = (
    *(("group.share.", "share groups are not served yet"), ("share.", "share groups are not served yet")),
    *(("group.streams.", "streams groups are not served yet"), ("group.consumer.", _CONSUMER)),
    *(("group.coordinator.rebalance.", _CONSUMER), ("offsets.load.", _LOADED)),
    ("group.coordinator.", "what comes while the loop turns is written together"),
    ("transaction.state.log.load.", _LOADED),
    ("transaction.two.phase.", "two-phase commit is not served yet"),
    *(("remote.", _TIERED), ("log.local.", _TIERED), ("local.", _TIERED), ("follower.fetch.", _TIERED)),
    *(("quota.", _QUOTAS), ("controller.quota.", _QUOTAS), ("replication.quota.", _QUOTAS)),
    *(
        ("alter.log.dirs.", _QUOTAS),
        ("leader.replication.", _THROTTLES),
        ("follower.replication.", _THROTTLES),
    ),
    ("replica.high.watermark.", "high watermarks are written with the other checkpoints"),
    ("controller.quorum.append.", "records are written as soon as the disk is free"),
    *(("controller.quorum.fetch.", _MEBIBYTE), ("controlled.", "every clean stop does")),
    ("socket.connection.", "every try lasts as long as the first"),
    *(
        ("delegation.", "there are no delegation tokens yet"),
        ("telemetry.", "metrics of clients are not taken"),
    ),
    ("connection.failed.", "connections are not authenticated yet"),
    *(
        ("log.dir.failure.", "it goes on trying"),
        ("log.flush.start.", "start offsets are written with the others"),
    ),
    *(("preallocate", "segments grow as they are written"), ("log.preallocate", "segments grow as needed")),
    *(
        ("socket.", "the system's buffers and backlog serve"),
        ("replica.socket.receive.", "the system's buffers serve"),
        ("metadata.max.idle", "nobody waits for no-ops"),
    ),
)

NOTES = {
    "broker.id": Here(State.HEEDED, "the same as `node.id`"),
    "max.connections": Here(State.HEEDED, "who is too many is turned away"),
    "max.connections.per.ip": Here(State.HEEDED, "who is too many is turned away"),
    "max.connections.per.ip.overrides": Here(State.HEEDED),
    "max.connection.creation.rate": Here(State.HEEDED, "who comes sooner is served later"),
    "listeners": Here(State.HEEDED, "not altered while the broker runs"),
    "listener.security.protocol.map": Here(State.HEEDED, "only PLAINTEXT; not altered while the broker runs"),
    "controller.quorum.voters": Here(State.HEEDED, "while the metadata log names no voters"),
    "controller.quorum.bootstrap.servers": Here(State.HEEDED),
    "process.roles": Here(State.HEEDED),
    "early.start.listeners": Here(State.WITHOUT_EFFECT, "it is only checked"),
    "min.insync.replicas": Here(
        State.HEEDED, "into the metadata of a new cluster; as many as there are replicas suffice"
    ),
    "unclean.leader.election.enable": Here(
        State.HEEDED, "a change is heeded within `unclean.leader.election.interval.ms`"
    ),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": Here(State.HEEDED),
    "transaction.remove.expired.transaction.cleanup.interval.ms": Here(State.HEEDED),
    **dict.fromkeys(
        (
            "offsets.topic.num.partitions",
            "offsets.topic.segment.bytes",
            "transaction.state.log.num.partitions",
            "transaction.state.log.segment.bytes",
        ),
        Here(State.HEEDED, "when the topic is made"),
    ),
    **dict.fromkeys(
        (
            "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor",
            "transaction.state.log.min.isr",
        ),
        Here(State.HEEDED, "when the topic is made; unless it is set, at most the number of brokers"),
    ),
    "log.cleaner.threads": Here(State.WITHOUT_EFFECT, "one log is compacted at a time"),
    "remote.storage.enable": Here(State.REFUSED, f"refused unless `false`: {_TIERED}"),
}

_GETTERS = ("integer", "optional_integer", "boolean", "double", "string", "strings", "get", "is_set")
_ALTERED = {
    Update.READ_ONLY: "restart",
    Update.PER_BROKER: "one broker",
    Update.CLUSTER_WIDE: "one or all",
}


@functools.cache
def asked_for() -> frozenset[str]:
    """The settings that the program asks for by name, other than to check them."""
    source = ROOT / "src" / "barnabas"
    settings = source / "core" / "settings"
    files = [path for path in source.rglob("*.py") if path.parent != settings]
    files += [settings / "listeners.py", settings / "broker_settings.py"]
    return frozenset(name for path in files for name in _names_asked(ast.parse(path.read_text())))


def _names_asked(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name)) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            first = node.args[-1]
            if called.lstrip("_") in _GETTERS and isinstance(first, ast.Constant):
                yield str(first.value)


def here(setting: Setting, heeded: set[str]) -> Here:
    """What becomes of a setting of the broker."""
    name = setting.name
    if name in NOTES:
        return NOTES[name]
    why = security.why_refused(name)
    if why is not None:
        return Here(State.REFUSED, why)
    if name in security.WARNED:
        return Here(State.WITHOUT_EFFECT, f"with a warning: {security.WARNED[name]}")
    if not setting.has_effect:
        return Here(State.WITHOUT_EFFECT, "one event loop serves everything")
    if name in heeded:
        return Here(State.HEEDED)
    return Here(State.WITHOUT_EFFECT, _why_not_yet(name))


def _why_not_yet(name: str) -> str:
    return next((why for prefix, why in NOT_YET if name.startswith(prefix)), "")


def topics_heed() -> set[str]:
    """The settings of a topic that mean something here."""
    return set(known_settings() & set(TOPIC)) | {"min.insync.replicas", "unclean.leader.election.enable"}


def brokers_heed() -> set[str]:
    """The settings of a broker that mean something here."""
    defaults = {synonym for name in topics_heed() for synonym, _ in SYNONYMS.get(name, ())}
    return {*asked_for(), *defaults, *known_settings()}


def _row(setting: Setting, about: str | None, *more: str) -> str:
    allowed = "" if setting.check == "-" else allowed_values(setting.check)
    kind = setting.kind.name.lower()
    kind = (
        allowed.removeprefix("a ")
        if allowed.startswith("a list")
        else ", ".join(filter(None, (kind, allowed)))
    )
    default = "**required**" if setting.is_required else _shown(setting.default)
    return f"| {' | '.join([f'`{setting.name}`', kind, default, *more, about or ''])} |"


def _shown(default: str | None) -> str:
    if default is None:
        return "none"
    return "empty" if default == "" else f"`{default}`"


def _table(headings: str, rows: Iterable[str]) -> str:
    columns = headings.count("|") + 1
    return "\n".join([f"| {headings} |", "|" + "---|" * columns, *rows])


def _about(name: str, words: str) -> str:
    told = (documentation.sentence(name) or "").partition(" Accepted without effect")[0]
    return f"{told} *{words[0].upper()}{words[1:]}.*" if words else told


def _brokers(state: State) -> str:
    heeded = brokers_heed()
    settings = [BROKER[name] for name in BROKER if not BROKER[name].is_internal]
    found = [(setting, here(setting, heeded)) for setting in settings]
    rows = [
        _row(setting, _about(setting.name, told.words), _ALTERED[setting.update])
        for setting, told in found
        if told.state is state
    ]
    return _table("setting | type | default | altered | what it is", rows)


def _topics() -> str:
    heeded = topics_heed()
    rows = []
    for name in TOPIC:
        setting = TOPIC[name]
        if setting.is_internal:
            continue
        told = NOTES.get(name) or Here(State.HEEDED if name in heeded else State.WITHOUT_EFFECT)
        if told.state is State.WITHOUT_EFFECT:
            told = Here(told.state, f"without effect: {_why_not_yet(name)}")
        synonyms = ", ".join(f"`{synonym}`" for synonym, _ in SYNONYMS.get(name, ()))
        rows.append(_row(setting, _about(name, told.words), synonyms))
    return _table("setting | type | default | where a topic does not say | what it is", rows)


def _groups() -> str:
    rows = [_row(GROUP[name], documentation.group_sentence(name)) for name in GROUP]
    return _table("setting | type | default | what it is", rows)


def _client_metrics() -> str:
    rows = [
        _row(CLIENT_METRICS[name], documentation.client_metrics_sentence(name)) for name in CLIENT_METRICS
    ]
    return _table("setting | type | default | what it is", rows)


def _own() -> str:
    return _table(
        "setting | type | default | what it is",
        [_row(OWN[name], documentation.sentence(name)) for name in OWN],
    )


def page() -> str:
    """The whole page."""
    text = (Path(__file__).parent / "configuration.md").read_text()
    parts = {
        "own": _own(),
        "topics": _topics(),
        "heeded": _brokers(State.HEEDED),
        "refused": _brokers(State.REFUSED),
        "without effect": _brokers(State.WITHOUT_EFFECT),
        "groups": _groups(),
        "client metrics": _client_metrics(),
    }
    for name, part in parts.items():
        assert text.count(f"[[{name}]]") == 1, name
        text = text.replace(f"[[{name}]]", part)
    return text


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
