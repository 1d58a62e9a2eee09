"""Settings as DescribeConfigs shows them: value, source, synonyms, type and documentation.

A value's synonyms are all settings that could have decided it, in order of precedence: the topic's or
group's, this broker's and all brokers' dynamic ones, the static ones, the default. They begin with the
setting's own name (or, for a topic, with the first of its broker synonyms): a value set only under another
name and unit is left out, as in Kafka, and the source is then the default's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.broker_settings import BrokerSettings, Source, base_name, setting_of
from barnabas.core.settings.client_metrics import CLIENT_METRICS
from barnabas.core.settings.definition import Kind, Setting, Update, format_value
from barnabas.core.settings.documentation import client_metrics_sentence, group_sentence, sentence
from barnabas.core.settings.group import GROUP, broker_synonym, group_default
from barnabas.core.settings.topic import SYNONYMS, TOPIC, effective_topic_settings, topic_defaults

# settings of the broker that are alternatives of one another: the finer unit takes precedence
_CHAINS = [[name for name, _ in chain] for chain in SYNONYMS.values() if len(chain) > 1]
_CHAIN_OF = {name: chain for chain in _CHAINS for name in chain}
# this one is only ever an alternative
_CHAIN_OF["log.flush.scheduler.interval.ms"] = ["log.flush.scheduler.interval.ms"]


class Synonym(NamedTuple):
    """One setting that could have decided a value."""

    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    """One setting as a client sees it; the value is None if it is null or secret."""

    name: str
    value: str | None
    read_only: bool
    source: Source
    is_sensitive: bool
    synonyms: list[Synonym]
    kind: Kind
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """Whether it was never set (version 0 has only this in place of the source)."""
        return self.source is Source.DEFAULT


def describe_broker(settings: BrokerSettings, names: Iterable[str] | None = None) -> list[Described]:
    """A broker's settings: the existing ones of `names`, or all, including unknown ones that were set."""
    public = (name for name in BROKER if not BROKER[name].is_internal)
    known = dict.fromkeys((*settings.static, *settings.dynamic, *settings.dynamic_default, *public))
    wanted = known if names is None else [name for name in dict.fromkeys(names) if name in known]
    return [_describe_one(settings, name) for name in wanted]


def describe_topic(
    overrides: Mapping[str, str], settings: BrokerSettings, names: Iterable[str] | None = None
) -> list[Described]:
    """A topic's settings: the existing ones of `names`, or all."""
    values = effective_topic_settings(overrides, topic_defaults(settings))
    known = dict.fromkeys((*overrides, *(name for name in TOPIC if not TOPIC[name].is_internal)))
    wanted = known if names is None else [name for name in dict.fromkeys(names) if name in known]
    return [_describe_topic_setting(name, values.get(name), overrides, settings) for name in wanted]


def describe_group(
    overrides: Mapping[str, str], settings: BrokerSettings, names: Iterable[str] | None = None
) -> list[Described]:
    """A group's settings, even if the group does not exist: the existing ones of `names`, or all."""
    known = dict.fromkeys((*GROUP, *overrides))
    wanted = known if names is None else [name for name in dict.fromkeys(names) if name in known]
    return [_describe_group_setting(name, overrides, settings) for name in wanted]


def describe_client_metrics(
    overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[Described]:
    """The settings of a client metrics subscription: the existing ones of `names`, or all."""
    wanted = CLIENT_METRICS if names is None else [name for name in names if name in CLIENT_METRICS]
    found = []
    for name in dict.fromkeys(wanted):
        setting = CLIENT_METRICS[name]
        shown = setting.normalised(overrides.get(name, setting.default or ""))
        synonyms = [Synonym(name, shown, Source.CLIENT_METRICS)] if name in overrides else []
        found.append(_described(setting, shown, False, synonyms, client_metrics_sentence(name)))
    return found


def _describe_one(settings: BrokerSettings, name: str) -> Described:
    setting = setting_of(name) or Setting(name, Kind.UNKNOWN, None, "-")
    value = None if setting.is_sensitive else format_value(settings.get(name))
    synonyms = _synonyms(settings, name, is_sensitive=setting.is_sensitive)
    read_only = setting.update is Update.READ_ONLY
    return _described(setting, value, read_only, synonyms, sentence(name))


def _describe_topic_setting(
    name: str, value: str | None, overrides: Mapping[str, str], settings: BrokerSettings
) -> Described:
    setting = TOPIC.get(name) or Setting(name, Kind.UNKNOWN, None, "-")
    shown = None if setting.is_sensitive else value
    synonyms = [Synonym(name, shown, Source.TOPIC)] if name in overrides else []
    if name in SYNONYMS:
        synonyms += _synonyms(settings, SYNONYMS[name][0][0], is_sensitive=setting.is_sensitive)
    return _described(setting, shown, False, synonyms, sentence(name))


def _describe_group_setting(name: str, overrides: Mapping[str, str], settings: BrokerSettings) -> Described:
    setting = GROUP.get(name) or Setting(name, Kind.UNKNOWN, None, "-")
    synonyms = []
    if name in overrides:
        shown = None if setting.is_sensitive else setting.normalised(overrides[name])
        synonyms = [Synonym(name, shown, Source.GROUP)]
    else:
        shown = format_value(group_default(name, settings))
    synonym = broker_synonym(name)
    if synonym is not None:
        synonyms += _synonyms(settings, synonym, is_sensitive=False)
    elif name in GROUP:
        synonyms.append(Synonym(name, GROUP[name].default, Source.DEFAULT))
    return _described(setting, shown, False, synonyms, group_sentence(name))


def _described(
    setting: Setting, value: str | None, read_only: bool, synonyms: list[Synonym], about: str | None
) -> Described:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return Described(
        setting.name, value, read_only, source, setting.is_sensitive, synonyms, setting.kind, about
    )


def _synonyms(settings: BrokerSettings, name: str, *, is_sensitive: bool) -> list[Synonym]:
    base = base_name(name)
    chain = [name, base] if base != name else _CHAIN_OF.get(name, [name])
    static = {each: given.text for each, given in settings.static.items() if each in chain}
    defaults = {each: BROKER[each].default for each in chain if each in BROKER}
    layers: list[tuple[Source, Mapping[str, str | None]]] = [
        (Source.DYNAMIC_BROKER, settings.dynamic),
        (Source.DYNAMIC_DEFAULT_BROKER, settings.dynamic_default),
        (Source.STATIC_BROKER, static),
        (Source.DEFAULT, defaults),
    ]
    found = [
        Synonym(each, None if is_sensitive else texts[each], source)
        for source, texts in layers
        for each in chain
        if texts.get(each) is not None
    ]
    first = next((at for at, one in enumerate(found) if one.name == name), len(found))
    return found[first:]
