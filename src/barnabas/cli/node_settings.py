"""The settings of a node as a command line gives them: flags over `KAFKA_*` variables over a file."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from barnabas.core.settings.broker_settings import BrokerSettings
from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.listeners import listen_advertised, listen_flags
from barnabas.core.settings.properties import parse_properties
from barnabas.core.settings.sources import BUILT_IN, resolve


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The options that say what a node is and where its data is."""
    parser.add_argument("--dir", metavar="D", help="where the data is kept (default: ./barnabas-data)")
    parser.add_argument("--listen", metavar="H:P", help="where clients connect (default: 127.0.0.1:9092)")
    parser.add_argument(
        "--config", metavar="F", help="a file of settings by Kafka's names (server.properties)"
    )
    parser.add_argument(
        "--set",
        metavar="K=V",
        action="append",
        default=[],
        dest="settings",
        help="one setting; may be repeated",
    )
    parser.add_argument("--strict", action="store_true", help="refuse to start where a setting is not known")


def load_settings(options: argparse.Namespace, **more: str | None) -> BrokerSettings:
    """The settings that a command line, the environment and a file come to; `more` are flags of the command's
    own, by the names of their settings with `_` for `.`."""
    flags: dict[str, str] = {}
    for text in options.settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidSetting(f"--set {text}: write it as name=value")
        flags[name.strip()] = value
    if options.dir is not None:
        flags["log.dirs"] = options.dir
    built_in = BUILT_IN
    if options.listen is not None:
        flags |= listen_flags(options.listen)
        built_in = {**BUILT_IN, **listen_advertised(options.listen, os.uname().nodename)}
    flags |= {name.replace("_", "."): text for name, text in more.items() if text is not None}
    file: dict[str, str] | None = None
    if options.config is not None:
        try:
            file = parse_properties(Path(options.config).read_text(encoding="latin-1"))  # as Java reads it
        except OSError as error:
            raise InvalidSetting(f"cannot read --config {options.config}: {error.strerror}") from error
    return resolve(flags=flags, environment=os.environ, file=file, strict=options.strict, built_in=built_in)
