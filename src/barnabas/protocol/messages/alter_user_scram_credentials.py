"""AlterUserScramCredentials: set and remove the credentials by which users log in (SCRAM)."""

from __future__ import annotations

from barnabas.protocol.schema import Bytes, Int8, Int16, Int32, Message, String, Struct


class ScramCredentialDeletion(Struct):
    name: String
    mechanism: Int8


class ScramCredentialUpsertion(Struct):
    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


class AlterUserScramCredentialsRequest(Message, key=51, versions=(0, 0), flexible=0):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class AlterUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16
    error_message: String | None


class AlterUserScramCredentialsResponse(Message, key=51, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32
    results: list[AlterUserScramCredentialsResult]
