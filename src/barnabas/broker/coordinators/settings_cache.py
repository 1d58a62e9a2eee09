"""Settings of a coordinator, derived from those of the broker.

Every command needs them, so they are derived again only when the broker's settings, or the feature level on
which they depend, have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.core.settings.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from barnabas.broker.services import Services

T = TypeVar("T")


class SettingsCache(Generic[T]):
    """Returns the current settings when called. `feature_level` is passed to `derive`."""

    __slots__ = ("_derive", "_derived", "_feature_level", "_level", "_services", "_settings")

    def __init__(
        self,
        services: Services,
        derive: Callable[[BrokerSettings, int], T],
        feature_level: Callable[[], int] = lambda: 0,
    ) -> None:
        self._services = services
        self._derive = derive
        self._feature_level = feature_level
        self._settings, self._level = services.settings, feature_level()
        self._derived = derive(self._settings, self._level)

    def __call__(self) -> T:
        settings, level = self._services.settings, self._feature_level()
        if settings is not self._settings or level != self._level:
            self._settings, self._level = settings, level
            self._derived = self._derive(settings, level)
        return self._derived
