"""What a node refuses to start with, since it could not keep the promise."""

from __future__ import annotations

import pytest

from barnabas.core.settings.listeners import read_listeners
from barnabas.core.settings.security import UnsupportedSetting, refuse_unenforceable, warnings_of
from barnabas.core.settings.sources import resolve


def start(**file: str) -> list[str]:
    settings = resolve(file={name.replace("_", "."): text for name, text in file.items()})
    listeners = read_listeners(settings)
    refuse_unenforceable(settings)
    return warnings_of(settings, listeners)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("ssl.keystore.location", "/etc/keys"),
        ("ssl.client.auth", "required"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.jaas.config", "x"),
        ("listener.name.plaintext.ssl.client.auth", "required"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "x"),
        ("listener.name.plaintext.scram-sha-256.sasl.server.callback.handler.class", "x"),
        ("principal.builder.class", "x"),
        ("delegation.token.secret.key", "x"),
        ("connections.max.reauth.ms", "1000"),
        ("create.topic.policy.class.name", "x"),
        ("alter.config.policy.class.name", "x"),
        ("client.quota.callback.class", "x"),
        ("security.providers", "x"),
        ("config.providers", "env"),
        ("remote.log.storage.system.enable", "true"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(name: str, text: str) -> None:
    settings = resolve(file={name: text})
    with pytest.raises(UnsupportedSetting) as refusal:
        refuse_unenforceable(settings)
    assert f"{name}: " in str(refusal.value)
    assert "remove it" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.class.name", ""),
        ("ssl.client.auth", "none"),
        ("ssl.enabled.protocols", "TLSv1.2, TLSv1.3"),
        ("sasl.enabled.mechanisms", "GSSAPI"),
        ("connections.max.reauth.ms", "0"),
        ("remote.log.storage.system.enable", "false"),
        ("delegation.token.max.lifetime.ms", "1000"),
        ("config.providers", ""),
    ],
)
def test_what_asks_for_nothing_is_accepted(name: str, text: str) -> None:
    settings = resolve(file={name: text})
    refuse_unenforceable(settings)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_protected_listener_is_refused(protocol: str) -> None:
    for name in ("CLIENTS", "CONTROLLER"):
        protocols = {"CLIENTS": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | {name: protocol}
        with pytest.raises(UnsupportedSetting, match=f"listener {name}: its protocol is {protocol}"):
            start(
                listeners="CLIENTS://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
                listener_security_protocol_map=",".join(":".join(pair) for pair in protocols.items()),
                inter_broker_listener_name="CLIENTS",
            )


def test_all_refusals_come_at_once() -> None:
    with pytest.raises(UnsupportedSetting) as refusal:
        start(ssl_client_auth="required", authorizer_class_name="x")
    assert "ssl.client.auth" in str(refusal.value)
    assert "authorizer.class.name" in str(refusal.value)


def test_a_refusal_shows_no_secret() -> None:
    with pytest.raises(UnsupportedSetting) as refusal:
        start(ssl_keystore_password="hunter2")
    assert "hunter2" not in str(refusal.value)


def test_altered_settings_are_judged_as_well() -> None:
    settings = resolve().with_dynamic({"ssl.client.auth": "required"}, {})
    with pytest.raises(UnsupportedSetting, match=r"ssl\.client\.auth"):
        refuse_unenforceable(settings)


def test_warnings() -> None:
    assert start() == []
    (line,) = start(listeners="PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093")
    assert "PLAINTEXT://:9092 listens beyond this machine" in line
    (line,) = start(num_network_threads="8", num_io_threads="3")
    assert "num.network.threads, num.io.threads" in line
    (line,) = start(replica_selector_class="x")
    assert "replica.selector.class" in line


def test_who_knows_better_may_have_access_rules_ignored() -> None:
    allow = {"barnabas_allow_unenforced_security": "true"}
    (line,) = start(authorizer_class_name="x", **allow)
    assert line.startswith("authorizer.class.name is NOT enforced")
    assert start(**allow) == []
    with pytest.raises(
        UnsupportedSetting, match=r"or go on without by barnabas\.allow\.unenforced\.security=true"
    ):
        start(authorizer_class_name="x")
    # what would be misread, or leave a secret in the open, is refused whatever is allowed
    for name in ("ssl_client_auth", "config_providers"):
        with pytest.raises(UnsupportedSetting):
            start(**{name: "required"}, **allow)
