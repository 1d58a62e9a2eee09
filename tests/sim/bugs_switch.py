"""What a deliberate bug is: a few patches of production code, in place as long as its switch is on.

A bug is a function that is given `patch(owner, name, replacement)`; `switched_on` undoes what it did. Nothing
in production code knows of any of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

Patch = Callable[[Any, str, Any], None]


class Bug(NamedTuple):
    """`checkers`: who may be the one to say so ("world": the simulation itself breaks)."""

    name: str
    what: str
    checkers: tuple[str, ...]
    apply: Callable[[Patch], None]


BUGS: dict[str, Bug] = {}


def bug(what: str, *checkers: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Make a bug of a function, under its name."""

    def make(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        name = apply.__name__.replace("_", "-")
        BUGS[name] = Bug(name, what, checkers, apply)
        return apply

    return make


@contextmanager
def switched_on(one: Bug | None) -> Iterator[None]:
    """Production code with that bug; as it is where there is none."""
    with ExitStack() as stack:

        def patch(owner: Any, name: str, replacement: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, replacement))

        if one is not None:
            one.apply(patch)
        yield
