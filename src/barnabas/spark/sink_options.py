"""The options of a write, named as those of Spark's own Kafka connector. Pure; does not import Spark.

Four are additional: `deliveryGuarantee` (by default exactly-once), `markerTopic` (where exactly-once stores
what it has written), and `txnAppId` with `txnVersion`, which identify a batch write that is repeated; in a
stream the query's id and the batch's number take their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.client.cluster import ClientConfig
from barnabas.client.producer_config import ALL, MAX_IN_FLIGHT_NUMBERED, ProducerConfig
from barnabas.records.compression import Codec
from barnabas.spark.option_values import BOOTSTRAP, MAX_INT32, Getter, OptionError, bootstrap, number

MARKER_TOPIC = "__barnabas_spark_markers"
# the brokers' default maximum: time for a failed query to be restarted
TRANSACTION_TIMEOUT_MS = 900_000
# requests of a megabyte take a fifth of what a task can have in flight
BUFFER_BYTES = 32 * 1024 * 1024

GUARANTEES = ("exactly-once", "at-least-once")

_TOPIC_LENGTH = 249
_OURS = ("deliveryGuarantee", "markerTopic", "txnAppId", "txnVersion")
# options that Spark adds to those of a stream, and one that its own connector ignores, too
_IGNORED = ("checkpointLocation", "queryName", "includeHeaders")
_NAMES = {name.lower(): name for name in (BOOTSTRAP, "topic", *_OURS, *_IGNORED)}

# supported settings of a producer -> the field of ProducerConfig, or of ClientConfig
_PRODUCER_FIELDS = {
    "kafka.batch.size": "batch_bytes",
    "kafka.buffer.memory": "buffer_bytes",
    "kafka.delivery.timeout.ms": "delivery_timeout_ms",
    "kafka.linger.ms": "linger_ms",
    "kafka.max.block.ms": "max_block_ms",
    "kafka.max.in.flight.requests.per.connection": "max_in_flight",
    "kafka.max.request.size": "max_request_bytes",
    "kafka.transaction.timeout.ms": "transaction_timeout_ms",
}
_CLIENT_FIELDS = {
    "kafka.metadata.max.age.ms": "metadata_max_age_ms",
    "kafka.reconnect.backoff.ms": "reconnect_backoff_ms",
    "kafka.request.timeout.ms": "request_timeout_ms",
    "kafka.retry.backoff.ms": "retry_backoff_ms",
}
_WORDS: dict[str, tuple[str, ...]] = {
    "kafka.acks": ("all", "-1", "1", "0"),
    "kafka.compression.type": tuple(codec.name.lower() for codec in Codec),
    "kafka.enable.idempotence": ("true", "false"),
    "kafka.security.protocol": ("plaintext",),
}
_CLIENT_ID = "kafka.client.id"
_INSTEAD = {
    "kafka.transactional.id": "the sink makes its own, of the query and the task",
    "kafka.key.serializer": "keys are written as they are: binary or string",
    "kafka.value.serializer": "values are written as they are: binary or string",
    "path": "topics are named by the option topic, or by a column topic",
}


class WriteOptions(NamedTuple):
    """The parsed options of a write."""

    bootstrap: str
    topic: str | None  # of all rows, whatever their column has
    is_exactly_once: bool
    marker_topic: str
    app: str | None  # of a batch write that may be repeated
    version: int | None
    producer: ProducerConfig

    @property
    def admin_client(self) -> ClientConfig:
        """The client for transactions: no request takes longer than kafka.max.block.ms."""
        return self.producer.client.bounded(self.producer.max_block_ms)


def parse_write_options(given: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """The options of `df.write` or `df.writeStream`; OptionError if they are invalid."""
    get = Getter(given)
    _check_names(given)
    is_exactly_once = get.choice("deliveryGuarantee", GUARANTEES) == "exactly-once"
    app, version = _application(get, is_stream, is_exactly_once)
    return WriteOptions(
        bootstrap(get.text(BOOTSTRAP) or ""),
        _topic(get, "topic"),
        is_exactly_once,
        _topic(get, "markerTopic") or MARKER_TOPIC,
        app,
        version,
        _producer_config(get, given, is_exactly_once),
    )


def _check_names(given: Mapping[str, str]) -> None:
    settings = [*_PRODUCER_FIELDS, *_CLIENT_FIELDS, *_WORDS, _CLIENT_ID]
    for name in given:
        low = name.lower()
        if low in _INSTEAD:
            raise OptionError(f"{name} cannot be set: {_INSTEAD[low]}")
        if low.startswith("kafka.") and low != BOOTSTRAP and low not in settings:
            raise OptionError(f"{name} means nothing to a write; there are: {', '.join(sorted(settings))}")
        if not low.startswith("kafka.") and low not in _NAMES:
            raise OptionError(f"unknown option {name} of a write; there are: {', '.join(_NAMES.values())}")


def _topic(get: Getter, name: str) -> str | None:
    text = get.text(name)
    if text is not None and not 0 < len(text.strip()) <= _TOPIC_LENGTH:
        raise OptionError(f"{name}={text!r}: must be the name of one topic")
    return None if text is None else text.strip()


def _application(get: Getter, is_stream: bool, is_exactly_once: bool) -> tuple[str | None, int | None]:
    app, version = get.text("txnAppId"), get.text("txnVersion")
    if (app is None) != (version is None):
        raise OptionError("txnAppId and txnVersion go together: who writes, and which of its writes this is")
    if app is None or version is None:
        return None, None
    if is_stream:
        raise OptionError("txnAppId and txnVersion are for batch writes: a stream has its own id and batches")
    if not is_exactly_once:
        raise OptionError("txnAppId and txnVersion need deliveryGuarantee=exactly-once")
    if not app.strip():
        raise OptionError("txnAppId is empty: give each job a name of its own")
    return app, number("txnVersion", version)


def _producer_config(get: Getter, given: Mapping[str, str], is_exactly_once: bool) -> ProducerConfig:
    fields: dict[str, Any] = {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, "buffer_bytes": BUFFER_BYTES}
    client: dict[str, Any] = {}
    for name in given:
        low = name.lower()
        if low in _PRODUCER_FIELDS:
            fields[_PRODUCER_FIELDS[low]] = number(low, given[name], largest=MAX_INT32)
        elif low in _CLIENT_FIELDS:
            client[_CLIENT_FIELDS[low]] = number(low, given[name])
    words = {name: get.choice(name, allowed) for name, allowed in _WORDS.items()}
    acks = ALL if words["kafka.acks"] in ("all", "-1") else int(words["kafka.acks"])
    # as in Kafka's producer: defaults give way to explicit settings
    is_idempotent = words["kafka.enable.idempotence"] == "true" and acks == ALL
    if is_exactly_once and not is_idempotent:
        raise OptionError(
            "deliveryGuarantee=exactly-once needs kafka.acks=all and kafka.enable.idempotence=true; "
            "leave them out, or set deliveryGuarantee to at-least-once"
        )
    if is_idempotent and fields.get("max_in_flight", 1) > MAX_IN_FLIGHT_NUMBERED:
        raise OptionError(
            f"kafka.max.in.flight.requests.per.connection: at most {MAX_IN_FLIGHT_NUMBERED} with idempotence"
        )
    config = ProducerConfig(
        acks=acks,
        idempotence=is_idempotent,
        compression=Codec[words["kafka.compression.type"].upper()],
        client=ClientConfig(
            client_id=get.text(_CLIENT_ID) or "barnabas-spark", allow_auto_topic_creation=True
        )._replace(**client),
    )._replace(**fields)
    return _checked(config)


def _checked(config: ProducerConfig) -> ProducerConfig:
    try:
        config.check()
    except ValueError as error:
        raise OptionError(str(error)) from None
    return config
