"""Where nodes of the metadata quorum are reached, as its messages tell it.

Answers name the leader's address on the listener that was asked; requests name every listener of a node.
"""

from __future__ import annotations

from barnabas.protocol.schema import Int32, String, Struct, UInt16


class LeaderNode(Struct):
    node_id: Int32
    host: String
    port: UInt16


class Listener(Struct):
    name: String
    host: String
    port: UInt16
