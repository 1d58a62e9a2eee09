"""Topics as Spark's tables: `spark.read.format("barnabas")`, for any Kafka. Only this package imports
pyspark.

The functions for pipelines can be imported from here, and are loaded at first use: every Python process of a
Spark task imports this package anew, and must start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.spark.avro_codec import avro_schema_of, decode_avro, encode_avro
    from barnabas.spark.delta import delta_merger, delta_writer, merge_delta, write_delta
    from barnabas.spark.delta_schema import DeltaRefused
    from barnabas.spark.joins import enrich, enriching, join_within
    from barnabas.spark.json_codec import decode_json, encode_json
    from barnabas.spark.progress import Lag, lag
    from barnabas.spark.protobuf_codec import decode_protobuf, encode_protobuf
    from barnabas.spark.routing import dead_letters, good, reject, routed, with_dead_letters
    from barnabas.spark.several_streams import prepare_streams
    from barnabas.spark.tables import ktable, ktable_changes
    from barnabas.spark.windows import sessions, sliding, tumbling

# public name -> its module; no name may be that of a module in this package
_MODULES = {
    "DeltaRefused": "delta_schema",
    "Lag": "progress",
    "avro_schema_of": "avro_codec",
    "dead_letters": "routing",
    "decode_avro": "avro_codec",
    "decode_json": "json_codec",
    "decode_protobuf": "protobuf_codec",
    "delta_merger": "delta",
    "delta_writer": "delta",
    "encode_avro": "avro_codec",
    "encode_json": "json_codec",
    "encode_protobuf": "protobuf_codec",
    "enrich": "joins",
    "enriching": "joins",
    "good": "routing",
    "join_within": "joins",
    "ktable": "tables",
    "ktable_changes": "tables",
    "lag": "progress",
    "merge_delta": "delta",
    "prepare_streams": "several_streams",
    "reject": "routing",
    "routed": "routing",
    "sessions": "windows",
    "sliding": "windows",
    "tumbling": "windows",
    "with_dead_letters": "routing",
    "write_delta": "delta",
}

__all__ = [
    "DeltaRefused",
    "Lag",
    "avro_schema_of",
    "dead_letters",
    "decode_avro",
    "decode_json",
    "decode_protobuf",
    "delta_merger",
    "delta_writer",
    "encode_avro",
    "encode_json",
    "encode_protobuf",
    "enrich",
    "enriching",
    "good",
    "join_within",
    "ktable",
    "ktable_changes",
    "lag",
    "merge_delta",
    "prepare_streams",
    "reject",
    "routed",
    "sessions",
    "sliding",
    "tumbling",
    "with_dead_letters",
    "write_delta",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        error.add_note(f"{name} needs more than is installed: pip install 'barnabas[spark,delta]'")
        raise
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
