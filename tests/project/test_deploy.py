"""What is there for services and containers: its files fit together, and mean what they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.core.settings.properties import parse_properties
from barnabas.core.settings.sources import resolve

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
IN_THE_IMAGE = parse_properties((ROOT / "deploy/docker/server.properties").read_text())
UNIT = ROOT / "deploy/systemd/barnabas.service"
BUILT_FROM = {"pyproject.toml", "setup.py", "README.md", "LICENSE", "src"}


def instruction(name: str) -> str:
    """The last one of that name."""
    return re.findall(rf"^{name} ((?:.*\\\n)*.*)", DOCKERFILE, re.MULTILINE)[-1]


def test_the_image_is_made_of_what_its_context_holds() -> None:
    copied = [
        word for line in re.findall(r"^COPY (.+)", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]
    ]
    assert set(copied) == BUILT_FROM | {"deploy/docker/server.properties"}
    first, *kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert first == "*"
    let_through = [line[1:] for line in kept if line.startswith("!")]
    assert all(any(name == one or name.startswith(f"{one}/") for one in let_through) for name in copied)


def test_the_settings_in_the_image_fit_its_instructions() -> None:
    settings = resolve(file=IN_THE_IMAGE, strict=True)
    assert all("listens beyond this machine" in warning for warning in settings.warnings)
    assert settings.log_dirs == (instruction("VOLUME"),)
    assert f":{instruction('EXPOSE')}," in IN_THE_IMAGE["listeners"]
    assert f"http://{IN_THE_IMAGE['barnabas.metrics.listen']}/ready" in instruction("HEALTHCHECK")
    assert json.loads(instruction("CMD")) == ["serve", "--config", "/etc/barnabas/server.properties"]
    assert "server.properties /etc/barnabas/" in instruction("COPY")


def test_variables_go_over_the_settings_in_the_image() -> None:
    settings = resolve(
        file=IN_THE_IMAGE, environment={"KAFKA_LOG_RETENTION_HOURS": "24", "KAFKA_NODE_ID": "7"}
    )
    assert settings.integer("log.retention.hours") == 24
    assert settings.integer("node.id") == 7


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/barnabas/bin/barnabas", sys.executable))
    command = ["systemd-analyze", "verify", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
