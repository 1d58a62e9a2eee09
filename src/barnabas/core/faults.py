"""Faults of the in-memory disk that tests inject: errors by rule, and crashes by a hook.

A rule makes matching operations fail as the operating system would. The hook is called before every mutating
operation and may raise anything. An exception that is not an `Exception` is a crash of the whole node:
afterwards every operation raises it until one of the disk's crash methods is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from barnabas.core.disk import storage_error

OPERATIONS = {
    "append": "append to",
    "create": "create",
    "list": "list",
    "lock": "lock",
    "mkdir": "make the directory",
    "open": "open",
    "read": "read",
    "remove": "remove",
    "rename": "rename",
    "set_modified": "set the time of",
    "sync": "sync",
    "sync_all": "sync all files in",
    "sync_dir": "sync the directory",
    "truncate": "truncate",
    "write_at": "write to",
}
MUTATIONS = frozenset(OPERATIONS) - {"list", "lock", "open", "read"}


class TornWrite(BaseException):
    """Raised by the hook of `append` or `write_at`: the first `count` bytes land, then `then` is raised."""

    def __init__(self, count: int, then: BaseException) -> None:
        super().__init__(f"only the first {count} bytes land")
        self.count = count
        self.then = then


@dataclass(slots=True)
class _Rule:
    operation: str
    errno: int
    path_glob: str
    after: int
    times: int | None

    def strikes(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.times == 0 or not fnmatchcase(path, self.path_glob):
            return False
        if self.after:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The rules and the hook of one disk."""

    def __init__(self) -> None:
        self.operations = 0
        self.before: Callable[[str, str], None] | None = None
        self._rules: list[_Rule] = []
        self._crash: BaseException | None = None

    def fail(self, operation: str, errno: int, path_glob: str, after: int, times: int | None) -> None:
        if operation not in OPERATIONS:
            raise ValueError(f"no such operation: {operation}; there are {', '.join(OPERATIONS)}")
        self._rules.append(_Rule(operation, errno, path_glob, after, times))

    def clear(self) -> None:
        self._rules.clear()

    def restart(self) -> None:
        """The node restarts after a crash; rules stay."""
        self._crash = None

    def check_alive(self) -> None:
        """Raise the crash if the node has crashed."""
        if self._crash is not None:
            raise self._crash

    def check(self, operation: str, path: str, where: str) -> None:
        """Call the hook and raise the fault that is due before an operation takes place."""
        self.check_alive()
        if operation in MUTATIONS:
            self.operations += 1
            if self.before is not None:
                self._call_hook(operation, path)
        for rule in self._rules:
            if rule.strikes(operation, path):
                error = OSError(rule.errno, os.strerror(rule.errno))
                raise storage_error(error, OPERATIONS[operation], where) from error

    def crash(self, error: BaseException) -> BaseException:
        """Note a crash of the node if `error` is one; returns it for the caller to raise."""
        if not isinstance(error, Exception):
            self._crash = error
        return error

    def _call_hook(self, operation: str, path: str) -> None:
        assert self.before is not None
        try:
            self.before(operation, path)
        except TornWrite:
            raise
        except BaseException as error:
            self.crash(error)
            raise
