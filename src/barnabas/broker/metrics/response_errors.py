"""Which errors a response tells of, wherever in it they stand; made from its declaration, once a class."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from barnabas.protocol.schema import Struct

_FIELD = "error_code"


class _Place(NamedTuple):
    """Where errors stand in a structure: in itself, and in which of its fields."""

    is_here: bool
    inside: tuple[tuple[str, bool, _Place], ...]  # a field, whether it is a list, and where in its elements


_places: dict[type[Struct], _Place] = {}


def errors_in(response: Struct) -> list[int]:
    """The codes of all errors, each as often as it is told."""
    cls = type(response)
    place = _places.get(cls)
    if place is None:
        place = _places[cls] = _place_in(cls)
    found: list[int] = []
    _collect(response, place, found)
    return found


def _collect(value: Any, place: _Place, found: list[int]) -> None:
    if place.is_here and value.error_code:
        found.append(value.error_code)
    for name, is_list, inside in place.inside:
        value_inside = getattr(value, name)
        if is_list:
            for element in value_inside or ():
                _collect(element, inside, found)
        elif value_inside is not None:
            _collect(value_inside, inside, found)


def _place_in(cls: type[Struct]) -> _Place:
    known = vars(sys.modules[cls.__module__])
    inside = []
    for field in cls.__fields__:
        plain = field.type_text.removesuffix(" | None")
        is_list = plain.startswith("list[")
        element = known.get(plain.removeprefix("list[").removesuffix("]") if is_list else plain)
        if isinstance(element, type) and issubclass(element, Struct):
            place = _place_in(element)
            if place.is_here or place.inside:
                inside.append((field.name, is_list, place))
    return _Place(any(field.name == _FIELD for field in cls.__fields__), tuple(inside))
