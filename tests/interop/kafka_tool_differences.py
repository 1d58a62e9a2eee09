"""What Apache Kafka's tools print that is another in every system, or in every run, and is not compared; and
the steps of which they say something else here, with what it is and the reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.support.kafka_tools import Done

_DECODER = json.JSONDecoder()

# features that Apache Kafka has and Barnabas does not serve yet
NOT_SERVED_YET = r"group\.version|share\.version|streams\.version"

# by step: what is said here instead, and why
_NO_GROUPS = (
    "Invalid update version 1 for feature group.version. Local controller 1 does not support this feature"
)
KNOWN = {
    "upgrade --release-version 4.3 --dry-run": (
        _NO_GROUPS,
        "a release sets all features, and those of later group protocols are not served",
    ),
    "downgrade --release-version 4.0 --dry-run": (
        _NO_GROUPS,
        "as above; it is refused there, too, for another reason",
    ),
}

_DIFFERS = [
    (re.compile(r"(?<=TopicId: )\S{22}|(?<=Cluster ID: )\S{22}|(?<=ClusterId: {14})\S{22}"), "<id>"),
    (re.compile(r'(?<="topicId":")[\w-]{22}(?=")'), "<id>"),
    (re.compile(r'(?<="directoryId": ")\S{22}|(?<=\t)\S{22}(?=\t)'), "<directory id>"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"127\.0\.0\.1[: ]\d+"), "<address>"),
    (re.compile(r"(?<=[ \t]Epoch: )\d+|(?<=HighWatermark: {10})\d+"), "<offset>"),
    # metadata-quorum: end offset, lag, times; describe-producers: id
    (re.compile(r"^1 +\t<directory id>\t\d+ +\t0 +\t\d+ +\t\d+ +", re.MULTILINE), "<replica>"),
    (re.compile(r"^\d+ +(?=\t0 +\t-1 )", re.MULTILINE), "<producer>"),
    # times of day, in milliseconds; how long a transaction has been open; rates
    (re.compile(r"\b1[78]\d{11}\b"), "0"),
    (re.compile(r"(?<=\t0 {16}\t)\d+ +(?=\t)"), "<duration>"),
    (re.compile(r"(?<=1000 records sent, ).*|(?<=crc: )\d+"), "<rates>"),
    (re.compile(r"[-\d]+ [:\d]+, [-\d]+ [:\d]+, ([\d.]+), [\d.]+, (\d+), .*"), r"\1 MB, \2 records"),
    (re.compile(r'(?<="avg_throughput":)[\d.]+'), "0"),
    # records that came 64 ms after the first of their batch say so in one byte more
    (re.compile(r'(?<="partition":"lines-0","size":)[1-9]\d*'), '"<not 0>"'),
    # a batch holds as many records of a coordinator as came at one time
    (re.compile(r"^baseOffset: .* isTransactional: false .*\n", re.MULTILINE), ""),
    (re.compile(rf"^Feature: ({NOT_SERVED_YET}) .*\n", re.MULTILINE), ""),
    (re.compile(r"^\tat .*\n", re.MULTILINE), ""),
    (re.compile(r"^  controller\.quorum\.bootstrap\.servers=.*\n", re.MULTILINE), ""),
]
# tables that come in the order of a hash table: members of groups, transactional ids
_UNORDERED = ("CONSUMER-ID", "TransactionalId")


def normal(done: Done, home: Path) -> Done:
    """What can be compared of it."""
    return Done(done.status, _without_differences(done.out, home), _without_differences(done.err, home))


def _without_differences(text: str, home: Path) -> str:
    text = text.replace(str(home), "<home>")
    for pattern, instead in _DIFFERS:
        text = pattern.sub(instead, text)
    if any(word in text for word in _UNORDERED):
        text = "\n\n".join("\n".join(sorted(part.split("\n"))) for part in text.split("\n\n"))
    return "\n".join(map(_json_in_order, text.split("\n")))


def _json_in_order(line: str) -> str:
    """The same line; each JSON in it is on a line of its own, and its lists have no order."""
    parts = []
    at = 0
    while (start := line.find("{", at)) >= 0:
        parts.append(line[at:start])
        try:
            told, at = _DECODER.raw_decode(line, start)
            parts.append(json.dumps(_in_order(told)))
        except ValueError:
            parts.append("{")
            at = start + 1
        parts.append("\n")
    return "".join([*parts, line[at:]])


def _in_order(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: _in_order(value) for name, value in told.items()}
    if isinstance(told, list):
        return sorted(map(_in_order, told), key=json.dumps)
    return told
