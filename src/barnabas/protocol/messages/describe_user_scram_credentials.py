"""DescribeUserScramCredentials: which users have credentials, never the credentials themselves."""

from __future__ import annotations

from barnabas.protocol.schema import Int8, Int16, Int32, Message, String, Struct


class UserName(Struct):
    name: String


class DescribeUserScramCredentialsRequest(Message, key=50, versions=(0, 0), flexible=0):
    users: list[UserName] | None


class CredentialInfo(Struct):
    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16
    error_message: String | None
    credential_infos: list[CredentialInfo]


class DescribeUserScramCredentialsResponse(Message, key=50, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[DescribeUserScramCredentialsResult]
