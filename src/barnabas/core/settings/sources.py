"""The sources of a broker's settings: flags over `KAFKA_*` variables over a file over built-in values.

`resolve` checks all given settings once, each value and their relations; the rest of the program reads the
resulting BrokerSettings. An unknown name is a warning with the nearest known one, and an error under
`strict`; Kafka would pass it on to plug-ins, which do not exist here. In the environment it is only a
warning, since other programs may use the same prefix.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.broker_settings import BrokerSettings, Given, setting_of
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.relations import check_relations

# Settings that Kafka requires in the file, with listeners and directory for a `serve` without any setting.
BUILT_IN = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:10092",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "barnabas-data",
}

_PREFIX = "KAFKA_"
# variables of Kafka's scripts and container images that are not settings; and those that clients use
_NO_SETTINGS = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        *("VERSION", "HOME", "DIR", "OPTS", "HEAP_OPTS", "JMX_OPTS", "JMX_PORT", "JMX_HOSTNAME", "DEBUG"),
        *("LOG4J_OPTS", "LOG4J_ROOT_LOGLEVEL", "LOG4J_LOGGERS", "TOOLS_LOG4J_LOGLEVEL", "GC_LOG_OPTS"),
        *("LOG4J_CMD_OPTS", "JVM_PERFORMANCE_OPTS", "CLASSPATH", "MODE", "CLUSTER_ID", "DEBUG_PORT"),
        *("BOOTSTRAP_SERVERS", "BROKERS", "ZOOKEEPER_CLIENT_CNXN_SOCKET", "DEBUG_SUSPEND_FLAG"),
    )
)
_REMOVED = {
    "zookeeper.connect": "there is no ZooKeeper in Kafka 4, nor here",
    "inter.broker.protocol.version": "features decide that since Kafka 4",
    "log.message.format.version": "there is one message format since Kafka 4",
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and ...after.max.ms",
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "host.name": "use listeners",
    "port": "use listeners",
    "offsets.commit.required.acks": "commits wait for all in-sync replicas since Kafka 4",
    "delegation.token.master.key": "use delegation.token.secret.key",
}
_PLUGIN_PREFIXES = ("rsm.config.", "rlmm.config.", "config.providers.", "remote.log.metadata.")


def resolve(
    *,
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Mapping[str, str] | None = None,
    built_in: Mapping[str, str] = BUILT_IN,
    strict: bool = False,
) -> BrokerSettings:
    """The settings of all layers; InvalidSetting for an invalid value or, under `strict`, an unknown name."""
    given = {name: Given(text, "the configuration file") for name, text in (file or {}).items()}
    given |= _from_environment(environment or {})
    given |= {name: Given(text, "--set") for name, text in (flags or {}).items()}
    _join_ids(given)
    warnings = []
    for name, one in given.items():
        problem = _judge(name, one)
        if problem is not None and strict and not one.origin.startswith(_PREFIX):
            raise InvalidSetting(problem)
        warnings += [problem] if problem is not None else []
    own = {name: Given(text, "built in", is_built_in=True) for name, text in built_in.items()}
    _join_ids(own)
    settings = BrokerSettings(own | given, warnings=warnings)
    check_relations(settings)
    return settings


def name_of_variable(variable: str) -> str:
    """The setting named by an environment variable: `_` is `.`, `__` is `_`, `___` is `-`."""
    name = variable.removeprefix(_PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def _from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    return {
        name_of_variable(variable): Given(text, variable)
        for variable, text in environment.items()
        if variable.startswith(_PREFIX) and variable != _PREFIX and variable not in _NO_SETTINGS
    }


def _join_ids(given: dict[str, Given]) -> None:
    """`broker.id` and `node.id` are one setting under two names."""
    broker_id, node_id = given.get("broker.id"), given.get("node.id")
    if broker_id is not None and node_id is not None:
        if broker_id.text.strip() != node_id.text.strip():
            raise InvalidSetting(f"broker.id={broker_id.text} and node.id={node_id.text} must be the same")
    elif broker_id is not None:
        given["node.id"] = broker_id
    elif node_id is not None:
        given["broker.id"] = node_id


def _judge(name: str, given: Given) -> str | None:
    """A warning if the name is not known; InvalidSetting if the value is wrong."""
    setting = setting_of(name)
    if setting is not None:
        try:
            setting.parse(given.text)
        except InvalidSetting as error:
            raise InvalidSetting(f"{error} (from {given.origin})") from None
        return None
    if name.startswith(_PLUGIN_PREFIXES):
        return f"{name} (from {given.origin}) is for a plug-in, and is not used"
    if name in _REMOVED:
        return f"{name} (from {given.origin}) is not used: {_REMOVED[name]}"
    return f"{name} (from {given.origin}) is not a setting of Kafka's{_nearest(name)}"


def _nearest(name: str) -> str:
    from difflib import get_close_matches  # 3 ms, needed only for a misspelt name

    close = get_close_matches(name, BROKER, n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""
