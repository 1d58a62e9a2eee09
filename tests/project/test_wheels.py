"""A wheel builds with and without a C compiler, and either one is the whole of Barnabas.

Both are built from copies of the source tree, installed beside the environment that runs the tests, and
put to work there in a process of their own. Slow because a C compiler is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
NOT_SOURCE = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", "_kernel.c")
KERNEL_SOURCES = (".pyx", ".pxi", ".pxd", ".pyi", ".h")
KERNEL_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

pytestmark = pytest.mark.slow


class Wheel(NamedTuple):
    """A wheel as built, its names, and the folder it was installed to."""

    kind: str
    names: list[str]
    folder: Path
    build_output: str


def has_compiler() -> bool:
    """Whether this machine can compile an extension: a compiler, and Python's headers."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """This Python, in a process of its own; what it says is part of the failure if it fails."""
    command = [sys.executable, *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BARNABAS_"))}
    result = subprocess.run(
        command, cwd=cwd, env=kept | environment, capture_output=True, text=True, timeout=280
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result


def copy_of_the_sources(to: Path) -> Path:
    """What git holds, without anything that was built in place: a wheel must not pick that up."""
    to.mkdir()
    for name in BUILT_FROM:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=NOT_SOURCE)
        else:
            shutil.copy(source, to / name)
    return to


@pytest.fixture(scope="module", params=["c", "pure"])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    kind: str = request.param
    if kind == "c" and not has_compiler():
        pytest.skip("needs a C compiler and Python's headers")
    place = tmp_path_factory.mktemp(kind)
    sources = copy_of_the_sources(place / "sources")
    environment = {} if kind == "c" else {"CC": str(place / "no-such-compiler")}
    built = run(
        "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place), cwd=sources, **environment
    )
    (path,) = place.glob("barnabas-*.whl")
    folder = place / "installed"
    run("-m", "pip", "install", "--no-deps", "--no-index", "--target", str(folder), str(path), cwd=place)
    return Wheel(kind, zipfile.ZipFile(path).namelist(), folder, built.stdout + built.stderr)


def test_it_holds_the_package_and_its_types(wheel: Wheel) -> None:
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "barnabas").rglob("*.py")}
    assert modules <= set(wheel.names)
    assert "barnabas/py.typed" in wheel.names
    assert "barnabas/records/_kernel.pyi" in wheel.names
    assert not [name for name in wheel.names if name.endswith((".pyx", ".pxi", ".h", ".c"))]
    tops = {name.partition("/")[0] for name in wheel.names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"barnabas", "pyspark_barnabas"}


def test_it_holds_the_compiled_kernel_only_where_there_was_a_compiler(wheel: Wheel) -> None:
    compiled = [name for name in wheel.names if name.endswith(".so")]
    assert compiled == ([f"barnabas/records/_kernel{KERNEL_SUFFIX}"] if wheel.kind == "c" else [])
    assert ("no-such-compiler" in wheel.build_output) == (wheel.kind == "pure")


ANNOUNCE = """
import logging, barnabas
from barnabas.records import kernel
logging.basicConfig(format="%(levelname)s %(message)s")
kernel.announce()
print(barnabas.__file__, kernel.NAME)
"""


def test_the_kernel_that_serves_says_so_if_it_is_the_slow_one(wheel: Wheel) -> None:
    result = run("-c", ANNOUNCE, cwd=wheel.folder, PYTHONPATH=str(wheel.folder))
    file, name = result.stdout.split()
    assert Path(file).is_relative_to(wheel.folder)
    assert name == wheel.kind
    assert ("pure-Python twin serves" in result.stderr) == (wheel.kind == "pure")


PYTEST = """
import importlib.util, sys, pytest
print(importlib.util.find_spec("barnabas").origin)  # imported by pytest: it is the home of a plugin
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_the_installed_wheel_passes_the_tests_of_its_bytes(wheel: Wheel) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-m", "not slow and not java", "tests/records")
    result = run("-c", PYTEST, *options, cwd=ROOT, PYTHONPATH=str(wheel.folder), BARNABAS_KERNEL=wheel.kind)
    assert Path(result.stdout.splitlines()[0]).is_relative_to(wheel.folder)
    assert re.search(r"\d+ passed", result.stdout), result.stdout


def test_the_source_distribution_holds_all_that_a_build_needs(tmp_path: Path) -> None:
    sources = copy_of_the_sources(tmp_path / "sources")
    run("-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), cwd=sources)
    (archive,) = tmp_path.glob("barnabas-*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    needed = {path.relative_to(sources) for path in sources.rglob("*") if path.suffix in KERNEL_SOURCES}
    assert needed
    assert {str(path) for path in needed} <= held
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE"} <= held
