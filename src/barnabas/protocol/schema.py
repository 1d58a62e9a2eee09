"""The declaration of messages: one class for a structure, for all its versions.

    class TopicData(Struct):
        name: String = field(0, 12)               # versions 0 to 12
        topic_id: Uuid = field(13)                # version 13 and later
        partitions: list[PartitionData]           # every version

    class ProduceRequest(Message, key=0, versions=(3, 13), flexible=9): ...

An annotation is the type on the wire; `X | None` may be null (only from version `nullable` on, if that is
given). A field without a default is required when an object is made. A field that is missing from a version
keeps its default when that version is read, and is left out when it is written. An absent tagged structure is
None. Declarations cost next to nothing at import: annotations stay text until `compiler` makes the codec of
one version, at first use. The same declarations serve requests, responses, and the records of the internal
topics.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, dataclass_transform

from barnabas.core.disk import Buffer, FileRange

# Types on the wire. Uuids are 16 bytes; records are opaque, and may be a range of a file when written.
Bool = bool
Int8 = int
Int16 = int
UInt16 = int
Int32 = int
UInt32 = int
Int64 = int
Float64 = float
String = str
Bytes = bytes
Uuid = bytes
Records = Buffer | FileRange

NO_UUID: Uuid = bytes(16)
EVERY_VERSION = 32767

_DEFAULTS: dict[str, Any] = {"Bool": False, "Float64": 0.0, "String": "", "Bytes": b"", "Uuid": NO_UUID}
_INTEGERS = frozenset(("Int8", "Int16", "UInt16", "Int32", "UInt32", "Int64"))


class Field(NamedTuple):
    """One field of a structure: its name, its type as text, and its versions."""

    name: str
    type_text: str
    first: int
    last: int
    nullable_from: int
    tag: int | None
    default: Any


class _Spec(NamedTuple):
    first: int
    last: int
    nullable: int | None
    tag: int | None
    default: Any


_UNSET: Any = object()


def field(
    first: int = 0,
    last: int = EVERY_VERSION,
    *,
    nullable: int | None = None,
    tag: int | None = None,
    default: Any = _UNSET,
) -> Any:
    """A field of versions `first` to `last`, tagged with `tag`; the default is its type's zero value."""
    return _Spec(first, last, nullable, tag, default)


@dataclass_transform(kw_only_default=True)
class Struct:
    """A structure: plain attributes, equal by value, no behaviour."""

    __fields__: ClassVar[tuple[Field, ...]] = ()

    def __init_subclass__(cls) -> None:
        texts: dict[str, str] = cls.__annotations__
        cls.__fields__ = tuple(
            _declared(cls, name, text) for name, text in texts.items() if not text.startswith("ClassVar")
        )

    def __init__(self, **values: Any) -> None:
        self.__dict__ = values

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = [f.name for f in self.__fields__]
        return all(_plain(getattr(self, name)) == _plain(getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        said = ", ".join(f"{f.name}={getattr(self, f.name, '?')!r}" for f in self.__fields__)
        return f"{type(self).__name__}({said})"


class Message(Struct):
    """A top-level structure: a request, a response, or a record of an internal topic."""

    __key__: ClassVar[int]
    __versions__: ClassVar[tuple[int, int]]
    __flexible__: ClassVar[int]  # the first version with compact lengths and tagged fields

    def __init_subclass__(
        cls, *, key: int = -1, versions: tuple[int, int] = (0, 0), flexible: int = EVERY_VERSION
    ) -> None:
        super().__init_subclass__()
        cls.__key__, cls.__versions__, cls.__flexible__ = key, versions, flexible


def _declared(cls: type[Struct], name: str, type_text: str) -> Field:
    given = cls.__dict__.get(name, _UNSET)
    spec = given if isinstance(given, _Spec) else _Spec(0, EVERY_VERSION, None, None, given)
    plain, optional = type_text.removesuffix(" | None"), type_text.endswith(" | None")
    nullable_from = EVERY_VERSION + 1 if not optional else spec.nullable or 0
    default = spec.default if spec.default is not _UNSET else _zero(plain, optional, spec.tag)
    setattr(cls, name, default)
    return Field(name, type_text, spec.first, spec.last, nullable_from, spec.tag, default)


def _zero(plain: str, optional: bool, tag: int | None) -> Any:
    if optional and tag is not None:
        return None
    if plain in _INTEGERS:
        return 0
    if plain in _DEFAULTS:
        return _DEFAULTS[plain]
    return () if plain.startswith("list[") else None


def _plain(value: Any) -> Any:
    """A value as it compares: lists and tuples are equal, and so are all kinds of buffers."""
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return list(value) if isinstance(value, tuple) and not isinstance(value, FileRange) else value
