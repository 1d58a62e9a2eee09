"""Where the nodes of a cluster of processes are: on the loopback interface, or each in a network namespace.

`Namespaces` gives every node a namespace with an interface `eth0`, one end of a veth pair whose other end
is a port of a bridge. The bridge is in one more namespace, which the calling thread (with the threads and
processes that it starts) enters for the length of the `with` block: nothing changes in the machine's own
network, and no packet leaves it. A node whose end is taken out of the bridge is cut off in silence, as by a
dead switch: nothing is refused, packets vanish in both directions. The addresses are those set aside for
examples (RFC 5737). At the end of the block, after a failure too, all namespaces are removed, and with them
what they hold. `missing` says what is not there: root, iproute2 or the kernel's support.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

_NAMED = Path("/run/netns")  # where `ip netns` keeps the names
_CLONE_NEWNET = 0x40000000  # linux/sched.h
_NETWORK, _BRIDGE_HOST = "198.51.100", 254


class NodeNetwork:
    """All nodes on the loopback interface."""

    def host(self, node_id: int) -> str:
        """The address that a node listens on."""
        del node_id
        return "127.0.0.1"

    def command(self, node_id: int, command: Sequence[str]) -> list[str]:
        """The command that runs another one where that node is."""
        del node_id
        return list(command)

    def beside(self, node_id: int) -> AbstractContextManager[None]:
        """While it is entered, this thread makes its connections where that node is."""
        del node_id
        return contextlib.nullcontext()


class NetworkFailed(Exception):
    """A namespace could not be made or changed."""


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkFailed(f"ip {' '.join(arguments)}: {done.stdout}{done.stderr}".rstrip())


@functools.cache
def missing() -> str | None:
    """What this machine lacks for namespaces, None where nothing."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "ip is not on the PATH (the package iproute2)"
    try:
        with Namespaces([1]):
            return None
    except (NetworkFailed, OSError) as error:
        return f"network namespaces cannot be made here: {error}"


class Namespaces(NodeNetwork):
    """`with Namespaces(ids) as network: ... network.isolate(3) ... network.heal(3)`."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self._ids = list(node_ids)
        self._prefix = f"barnabas-{os.getpid()}"
        self._hub = f"{self._prefix}-bridge"
        self._undo = ExitStack()

    def __enter__(self) -> Namespaces:
        with ExitStack() as undo:
            for name in (self._hub, *map(self._name, self._ids)):
                _ip("netns", "add", name)
                undo.callback(_ip, "netns", "delete", name)
                _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
            _ip("-n", self._hub, "address", "add", f"{_NETWORK}.{_BRIDGE_HOST}/24", "dev", "bridge")
            _ip("-n", self._hub, "link", "set", "bridge", "up")
            for node_id in self._ids:
                self._connect(node_id)
            undo.enter_context(_inside(self._hub))
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.__exit__(kind, error, trace)

    def _connect(self, node_id: int) -> None:
        name, port = self._name(node_id), self._port(node_id)
        _ip("-n", self._hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", name, "address", "add", f"{self.host(node_id)}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        self.heal(node_id)
        _ip("-n", self._hub, "link", "set", port, "up")

    def _name(self, node_id: int) -> str:
        return f"{self._prefix}-{node_id}"

    def _port(self, node_id: int) -> str:
        return f"node{node_id}"

    def host(self, node_id: int) -> str:
        return f"{_NETWORK}.{node_id}"

    def command(self, node_id: int, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self._name(node_id), *command]

    def beside(self, node_id: int) -> AbstractContextManager[None]:
        return _inside(self._name(node_id))

    def isolate(self, node_id: int) -> None:
        """Cut a node off from all others, and from this thread."""
        _ip("-n", self._hub, "link", "set", self._port(node_id), "nomaster")

    def heal(self, node_id: int) -> None:
        """Connect it again."""
        _ip("-n", self._hub, "link", "set", self._port(node_id), "master", "bridge")


@contextmanager
def _inside(name: str) -> Iterator[None]:
    """This thread in a namespace, and back."""
    with open("/proc/thread-self/ns/net", "rb") as own, (_NAMED / name).open("rb") as named:
        _enter(named.fileno())
        try:
            yield
        finally:
            _enter(own.fileno())


def _enter(namespace: int) -> None:
    # os.setns came with Python 3.12
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
