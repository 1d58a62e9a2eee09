"""What `barnabas.spark` offers is there, and costs nothing until it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import barnabas.spark

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", barnabas.spark.__all__)
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(barnabas.spark, name).__doc__
    assert name in dir(barnabas.spark)


def test_other_names_are_not_there() -> None:
    assert sorted(barnabas.spark._MODULES) == barnabas.spark.__all__ == sorted(barnabas.spark.__all__)
    with pytest.raises(AttributeError, match="no attribute 'decode_xml'"):
        _ = barnabas.spark.decode_xml


def test_a_task_does_not_pay_for_what_it_does_not_use() -> None:
    heavy = "{'deltalake', 'fastavro', 'google.protobuf', 'pyarrow', 'pyspark'}"
    command = f"import sys, barnabas.spark; print(sorted({heavy} & {{*sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_what_is_not_installed_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "barnabas.spark.delta", raising=False)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ModuleNotFoundError, match="deltalake") as raised:
        _ = barnabas.spark.write_delta
    assert raised.value.__notes__ == [
        "write_delta needs more than is installed: pip install 'barnabas[spark,delta]'"
    ]
