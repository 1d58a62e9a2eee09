"""Finds all error codes in a response, at any depth.

This runs for many requests on a node with metrics. So for each kind of response a search function is
generated from its declaration at first use: loops over the lists that lead to an `error_code`, and nothing
else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from barnabas.protocol.schema import Message, Struct

_FIELD = "error_code"

_searches: dict[type[Message], Callable[[Message], list[int]]] = {}


def errors_in(response: Message) -> list[int]:
    """The codes of all errors, every occurrence."""
    cls = type(response)
    search = _searches.get(cls)
    if search is None:
        search = _searches[cls] = _made_for(cls)
    return search(response)


def _made_for(cls: type[Message]) -> Callable[[Message], list[int]]:
    source = [
        "def search(response):",
        " found, v0 = [], response.__dict__",
        *_search(cls, 0, " "),
        " return found",
    ]
    namespace: dict[str, Callable[[Message], list[int]]] = {}
    exec("\n".join(source), namespace)
    return namespace["search"]


def _search(cls: type[Struct], depth: int, indent: str) -> Iterator[str]:
    """The lines that search a structure, in a variable named v and its depth.

    Attributes are looked up in the object's dictionary: an attribute that is not in it has its default, and
    is no error.
    """
    value, inside = f"v{depth}", f"v{depth + 1}"
    for field in cls.__fields__:
        if field.name == _FIELD:
            yield f"{indent}if {value}.get('{_FIELD}'): found.append({value}['{_FIELD}'])"
        element, is_list = _structure(cls, field.type_text)
        lines = list(_search(element, depth + 1, indent + " ")) if element is not None else []
        if lines:
            several = f"{value}.get('{field.name}')"
            yield f"{indent}for {inside} in {several if is_list else f'({several},)'} or ():"
            yield f"{indent} if {inside} is None: continue"
            yield f"{indent} {inside} = {inside}.__dict__"
            yield from lines


def _structure(cls: type[Struct], type_text: str) -> tuple[type[Struct] | None, bool]:
    """The structure that is a field's type or element type, if it is one, and whether the field is a list."""
    plain = type_text.removesuffix(" | None")
    is_list = plain.startswith("list[")
    name = plain.removeprefix("list[").removesuffix("]") if is_list else plain
    found = vars(sys.modules[cls.__module__]).get(name)
    return (found if isinstance(found, type) and issubclass(found, Struct) else None), is_list
