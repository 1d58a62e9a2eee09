"""Random messages of any declared class and version, for tests of the codecs."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from random import Random
from typing import Any

from barnabas.protocol import messages
from barnabas.protocol.schema import Field, Message, Struct

_BITS = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}


def declared() -> list[type[Message]]:
    """Every request and response there is."""
    found = []
    for module in pkgutil.iter_modules(messages.__path__):
        names = vars(importlib.import_module(f"{messages.__name__}.{module.name}")).values()
        found += [c for c in names if isinstance(c, type) and issubclass(c, Message) and c is not Message]
    return found


def random_message(cls: type[Struct], version: int, random: Random, *, depth: int = 0) -> Any:
    """A message with every field of that version filled in, nulls and defaults among them."""
    values = {}
    for field in cls.__fields__:
        if field.first <= version <= field.last:
            values[field.name] = _random_field(cls, field, version, random, depth)
    return cls(**values)


def _random_field(cls: type[Struct], field: Field, version: int, random: Random, depth: int) -> Any:
    plain = field.type_text.removesuffix(" | None")
    if field.tag is not None and random.random() < 0.4:
        return field.default
    if field.name.endswith("error_code"):
        return random.randint(-1, 100)
    if field.name.endswith("_ms"):
        return random.randrange(1 << 31)
    is_struct = plain[0].isupper() and plain not in _SIMPLE
    if version >= field.nullable_from and random.random() < 0.3 and not (field.tag is not None and is_struct):
        return None
    return _random_value(cls, plain, version, random, depth)


def _random_value(cls: type[Struct], plain: str, version: int, random: Random, depth: int) -> Any:
    if plain.startswith("list["):
        count = random.choice([0, 1, 2, 3, 130] if depth == 0 else [0, 1, 2])
        return [_random_value(cls, plain[5:-1], version, random, depth + 1) for _ in range(count)]
    if plain in _BITS:
        return random.randint(
            -(1 << random.randrange(_BITS[plain])), (1 << random.randrange(_BITS[plain])) - 1
        )
    if plain in _SIMPLE:
        return _SIMPLE[plain](random)
    return random_message(getattr(sys.modules[cls.__module__], plain), version, random, depth=depth + 1)


def _text(random: Random) -> str:
    return "".join(random.choices("abcé€😀.-_", k=random.choice([0, 1, 5, 126, 127, 128, 300])))


_SIMPLE: dict[str, Any] = {
    "Bool": lambda r: r.random() < 0.5,
    "UInt16": lambda r: r.randrange(1 << 16),
    "UInt32": lambda r: r.randrange(1 << 32),
    "Float64": lambda r: r.random(),
    "String": _text,
    "Bytes": lambda r: r.randbytes(r.choice([0, 1, 127, 128, 1000])),
    "Records": lambda r: r.randbytes(r.choice([0, 61, 127, 5000])),
    "Uuid": lambda r: r.randbytes(16),
    **dict.fromkeys(_BITS),
}
