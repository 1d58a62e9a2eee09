"""Which kernel serves, and what it says about it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from barnabas.records import kernel


def python(code: str, choice: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"BARNABAS_KERNEL": choice, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_the_pure_twin_serves_on_demand_and_says_why() -> None:
    code = (
        "import logging; logging.basicConfig(format='%(name)s %(message)s')\n"
        "from barnabas.records import kernel\n"
        "kernel.announce(); print(kernel.NAME, '|', kernel.PURE_REASON)"
    )
    done = python(code, "pure")
    assert done.stdout.strip() == "pure | BARNABAS_KERNEL=pure asks for it"
    assert done.stderr.count("\n") == 1
    assert "barnabas.records record kernel: the pure-Python twin serves" in done.stderr


def test_without_the_extension_auto_falls_back_and_c_insists() -> None:
    hide = "import sys; sys.modules['barnabas.records._kernel'] = None\n"
    code = hide + "from barnabas.records import kernel; print(kernel.NAME, kernel.PURE_REASON)"
    assert python(code, "auto").stdout.startswith("pure the compiled kernel cannot be loaded")
    assert "NoSuchKernel: BARNABAS_KERNEL=c, but the compiled kernel cannot be" in python(code, "c").stderr


@pytest.mark.parametrize("command", ["doctor", "consume", "serve"])
@pytest.mark.parametrize(("choice", "said"), [("c", "cannot be loaded"), ("fast", "must be one of")])
def test_a_command_says_which_kernel_it_lacks_in_a_line(command: str, choice: str, said: str) -> None:
    hide = "import sys; sys.modules['barnabas.records._kernel'] = None\n"
    code = (
        hide + f"from barnabas.cli.main import main; sys.exit(main(['{command}', 'x', '--bootstrap', 'x']))"
    )
    done = python(code, choice)
    assert done.returncode == 1
    assert done.stderr.startswith(f"barnabas {command}: BARNABAS_KERNEL=")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unknown_choice_is_refused() -> None:
    done = python("import barnabas.records.kernel", "fast")
    assert done.returncode != 0
    assert "BARNABAS_KERNEL='fast': must be one of c, pure, auto" in done.stderr


def test_the_pure_twin_loads_no_compiled_kernel_and_columns_load_no_arrow() -> None:
    code = (
        "import sys; from barnabas.records import columnar\n"
        "print('barnabas.records._kernel' in sys.modules, 'pyarrow' in sys.modules)"
    )
    assert python(code, "pure").stdout.strip() == "False False"


def test_the_compiled_kernel_does_not_announce_itself(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "barnabas.records"):
        kernel.announce()
    assert len(caplog.records) == (kernel.NAME == "pure")


def test_both_twins_offer_everything() -> None:
    from barnabas.records import _pure, _pure_columns, _pure_compact

    offered = set(dir(_pure)) | set(dir(_pure_columns)) | set(dir(_pure_compact))
    assert set(kernel.__all__) - {"PURE_REASON", "NoSuchKernel", "announce"} <= offered
