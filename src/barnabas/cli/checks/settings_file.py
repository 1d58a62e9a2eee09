"""A file of settings, before a node is started with it: every one that is wrong, unknown, idle or refused."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from barnabas.cli.checks.findings import Finding, Section, ok, problem, warning
from barnabas.cli.output import counted
from barnabas.core.errors import BarnabasError
from barnabas.core.settings.broker_settings import BrokerSettings, setting_of
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.listeners import Listeners, read_listeners
from barnabas.core.settings.properties import parse_properties
from barnabas.core.settings.security import UnsupportedSetting, refuse_unenforceable, warnings_of
from barnabas.core.settings.sources import resolve


class CheckedSettings:
    """A file that has been looked at; `settings` is None where a node would not start with it."""

    def __init__(self, section: Section, settings: BrokerSettings | None) -> None:
        self.section = section
        self.settings = settings


def check_settings_file(path: Path) -> CheckedSettings:
    """Everything there is to say of a file of settings."""
    subject = f"settings in {path}"
    try:
        given = parse_properties(path.read_text(encoding="latin-1"))  # as Java reads it
    except OSError as error:
        return CheckedSettings(Section(subject, [problem(f"cannot be read: {error.strerror}")]), None)
    except InvalidSetting as error:
        return CheckedSettings(Section(subject, [problem(str(error))]), None)
    findings = list(_wrong_values(given))
    wrong = bool(findings)
    usable = {name: text for name, text in given.items() if _fault(name, text) is None}
    settings: BrokerSettings | None = None
    try:
        settings = resolve(file=usable)
    except BarnabasError as error:
        findings.append(problem(str(error), "mend it; a node does not start with it"))
    if settings is not None:
        findings += [warning(_without_origin(text), "remove or mend the line") for text in settings.warnings]
        findings += _judged(settings)
    if not findings:
        findings.append(ok(f"{counted(len(given), 'setting')}, all known and in effect"))
    return CheckedSettings(Section(subject, findings), None if wrong else settings)


def _fault(name: str, text: str) -> str | None:
    setting = setting_of(name)
    if setting is None:
        return None
    try:
        setting.parse(text)
    except InvalidSetting as error:
        return str(error)
    return None


def _wrong_values(given: Mapping[str, str]) -> Iterator[Finding]:
    for name, text in given.items():
        fault = _fault(name, text)
        if fault is not None:
            yield problem(fault, "mend it; a node does not start with it")


def _without_origin(text: str) -> str:
    return text.replace(" (from the configuration file)", "")


def _judged(settings: BrokerSettings) -> Iterator[Finding]:
    """What a node would refuse, and what it would say when it starts."""
    try:
        refuse_unenforceable(settings)
    except UnsupportedSetting as error:
        for line in str(error).splitlines()[1:]:
            what, _, next_step = line.strip().partition("; ")
            yield problem(f"refused, since it could not be enforced: {what}", next_step or None)
        return
    try:
        listeners = read_listeners(settings)
    except BarnabasError as error:
        yield problem(str(error), "mend listeners; a node does not start with them")
        return
    yield from (warning(text) for text in warnings_of(settings, listeners))
    yield from _advertised(listeners)


def _advertised(listeners: Listeners) -> Iterator[Finding]:
    for each in listeners.advertised:
        if not each.host or re.fullmatch(r"[\d.]+|.*:.*", each.host):  # this machine's, or an address
            continue
        try:
            socket.getaddrinfo(each.host, each.port)
        except OSError:
            yield warning(
                f"{each.endpoint} is advertised, and its name cannot be resolved here",
                "clients must be able to; mend advertised.listeners, or the name service",
            )
