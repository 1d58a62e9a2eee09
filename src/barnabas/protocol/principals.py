"""The principal of a forwarded request as bytes: the version (int16), then `DefaultPrincipalData`."""

from __future__ import annotations

import struct

from barnabas.core.disk import Buffer
from barnabas.core.errors import BarnabasError, wire_error
from barnabas.protocol.codecs import decode, encode
from barnabas.protocol.messages.default_principal_data import DefaultPrincipalData
from barnabas.protocol.wire import MalformedMessage

_VERSION = struct.Struct(">h")


class PrincipalDeserializationFailure(BarnabasError):
    """The principal of a forwarded request cannot be read."""

    wire = wire_error("PRINCIPAL_DESERIALIZATION_FAILURE")


def encode_principal(principal: DefaultPrincipalData) -> bytes:
    version = DefaultPrincipalData.__versions__[1]
    return _VERSION.pack(version) + encode(principal, version)


def decode_principal(data: Buffer) -> DefaultPrincipalData:
    lowest, highest = DefaultPrincipalData.__versions__
    if len(data) < _VERSION.size:
        raise PrincipalDeserializationFailure("a principal is shorter than its version")
    (version,) = _VERSION.unpack_from(data)
    if not lowest <= version <= highest:
        raise PrincipalDeserializationFailure(f"a principal of version {version}, which is not known")
    try:
        return decode(DefaultPrincipalData, version, data, _VERSION.size)
    except MalformedMessage as error:
        raise PrincipalDeserializationFailure(str(error)) from None
