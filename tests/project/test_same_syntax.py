"""tools/same_syntax.py: docstrings and comments may change, code may not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.same_syntax import main, tree

BEFORE = '"""Words."""\n\n\nclass Error(Exception):\n    """Words."""\n\n\ndef double(x):\n    return 2 * x\n'


@pytest.mark.parametrize(
    "after",
    [
        BEFORE.replace("Words", "Others"),
        BEFORE.replace('    """Words."""', "    pass"),
        BEFORE.replace('"""Words."""\n\n\nclass', "class"),
        BEFORE.replace("return", "# twice\n    return"),
        BEFORE.replace("    return", '    """Words."""\n    return'),
    ],
)
def test_words_are_no_part_of_the_tree(after: str) -> None:
    assert after != BEFORE
    assert tree(after) == tree(BEFORE)


@pytest.mark.parametrize(
    "after",
    [
        BEFORE.replace("2 *", "3 *"),
        BEFORE.replace("double", "twice"),
        BEFORE.replace("return 2 * x", 'return "words"'),
        BEFORE + 'WORDS = "words"\n',
    ],
)
def test_code_is_part_of_the_tree(after: str) -> None:
    assert tree(after) != tree(BEFORE)


def test_files_that_differ_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)

    git("init")
    names = [Path("words.py"), Path("code.py"), Path("page.md")]
    for name in names:
        name.write_text(BEFORE)
    git("add", ".")
    git("commit", "--message", "before")
    for name in names:
        name.write_text(BEFORE.replace("Words", "Others"))
    assert main(["HEAD"]) == 0
    Path("code.py").write_text(BEFORE.replace("2 *", "3 *"))
    assert main(["HEAD"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "code.py",
        "2 Python files compared, 1 differ; 1 others not compared",
    ]
    assert main(["HEAD", "words.py"]) == 0
    git("commit", "--all", "--message", "after")
    assert main(["HEAD"]) == 0
    assert main(["HEAD~1..HEAD"]) == 1
    Path("code.py").unlink()
    assert main(["HEAD"]) == 1
