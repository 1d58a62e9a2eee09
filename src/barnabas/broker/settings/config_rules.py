"""The controller's rules for altered settings, by resource type.

Changes to brokers are validated by the broker that is asked (config_requests.py): only it knows its settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.controller.configs import CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, ConfigRules
from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.client_metrics import validate_client_metrics
from barnabas.core.settings.definition import Kind, format_value
from barnabas.core.settings.group import validate_group_overrides
from barnabas.core.settings.topic import TOPIC, topic_defaults, validate_topic_overrides
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE


def config_rules(broker: BrokerSettings, static: BrokerSettings) -> ConfigRules:
    """The rules under the broker's current settings (`broker`) and those that it was started with
    (`static`)."""

    def validate(resource_type: int, resource_name: str, overrides: Mapping[str, str]) -> None:
        if resource_type == TOPIC_RESOURCE:
            validate_topic_overrides(overrides, topic_defaults(broker))
        elif resource_type == GROUP_RESOURCE:
            validate_group_overrides(overrides, broker)
        elif resource_type == CLIENT_METRICS_RESOURCE:
            validate_client_metrics(resource_name, overrides)

    def list_default(resource_type: int, name: str) -> str | None:
        if resource_type == TOPIC_RESOURCE and (setting := TOPIC.get(name)) and setting.kind is Kind.LIST:
            return topic_defaults(static).get(name, "")
        if resource_type == BROKER_RESOURCE and (setting := BROKER.get(name)) and setting.kind is Kind.LIST:
            return format_value(static.get(name)) or ""
        return None

    return ConfigRules(validate, list_default)
