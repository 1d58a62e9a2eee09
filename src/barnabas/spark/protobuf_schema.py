"""Finds a message type, sends it to tasks, and finds its place in its file.

A message is given by its class, or by a descriptor set (`protoc --include_imports --descriptor_set_out`) and
its full name. Either way tasks get the descriptor set, as bytes: classes made at run time cannot be pickled,
and each process builds its own from it, once, in a separate pool.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import (  # type: ignore[import-untyped]
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

MessageSource = type[Message] | tuple[bytes | str | Path, str]

_WELL_KNOWN = (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)


class ProtobufSchemaError(ValueError):
    """The message type cannot be found, or Spark has no such type."""


class MessageSpec(NamedTuple):
    """A message type in the form that is sent to tasks."""

    descriptor_set: bytes
    name: str


def message_spec(source: MessageSource) -> MessageSpec:
    """The message type as bytes; ProtobufSchemaError if there is no such message."""
    if not isinstance(source, tuple) and not hasattr(source, "DESCRIPTOR"):
        raise ProtobufSchemaError(f"a message is a class, or (descriptor set, name), and not {source!r}")
    if isinstance(source, tuple):
        where, name = source
        spec = MessageSpec(where if isinstance(where, bytes) else Path(where).read_bytes(), name)
    else:
        files = descriptor_pb2.FileDescriptorSet()
        _collect(source.DESCRIPTOR.file, files, set())
        spec = MessageSpec(files.SerializeToString(), source.DESCRIPTOR.full_name)
    message_class(spec)
    return spec


def _collect(file: Any, files: descriptor_pb2.FileDescriptorSet, seen: set[str]) -> None:
    """Add a file after those that it imports."""
    if file.name in seen:
        return
    seen.add(file.name)
    for each in file.dependencies:
        _collect(each, files, seen)
    file.CopyToProto(files.file.add())


@cache
def message_class(spec: MessageSpec) -> type[Message]:
    """The class of the message, in a separate pool."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(spec.descriptor_set)
    except DecodeError as error:
        raise ProtobufSchemaError(f"not a descriptor set: {error}") from error
    pool = descriptor_pool.DescriptorPool()
    own = {file.name for file in files.file}
    for module in _WELL_KNOWN:
        if module.DESCRIPTOR.name not in own:
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    try:
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
        made: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(spec.name))
    except KeyError as error:
        named = ", ".join(f"{file.package}.{each.name}" for file in files.file for each in file.message_type)
        raise ProtobufSchemaError(f"no message {spec.name}; there are {named[:300]}") from error
    except TypeError as error:
        raise ProtobufSchemaError(
            f"the descriptor set is not whole ({error}); make it with protoc --include_imports"
        ) from error
    return made


def message_indexes(descriptor: Any) -> tuple[int, ...]:
    """The path of a message in its file, as registries write it; (0,) for the first message."""
    proto: Any
    outer = descriptor.containing_type
    if outer is None:
        proto = descriptor_pb2.FileDescriptorProto()
        descriptor.file.CopyToProto(proto)
        return ([each.name for each in proto.message_type].index(descriptor.name),)
    proto = descriptor_pb2.DescriptorProto()
    outer.CopyToProto(proto)
    return (*message_indexes(outer), [each.name for each in proto.nested_type].index(descriptor.name))
