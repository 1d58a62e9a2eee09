"""Java's .properties format; test_against_kafka.py compares with Java itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.settings.definition import InvalidSetting
from barnabas.core.settings.properties import format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb:2\nc 3\nd\n", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("  a  =  1 \r\n\r\n# no\r\n! no\rb=2", {"a": "1 ", "b": "2"}),
        ("a=one,\\\n    two\\\n,three", {"a": "one,two,three"}),
        ("a\\ b\\=c\\:=\\t\\u0041\\q", {"a b=c:": "\tAq"}),
        ("# comment \\\na=1", {"a": "1"}),
        ("a=even\\\\\nb=2", {"a": "even\\", "b": "2"}),
        ("a==b=c", {"a": "=b=c"}),
        ("a=1\na=2", {"a": "2"}),
        ("face=\\ud83d\\ude00", {"face": "\U0001f600"}),
        ("", {}),
        ("a=\\", {"a": ""}),
    ],
)
def test_parse(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("escape", ["\\u12", "\\u12g4", "\\u", "\\u+123"])
def test_a_bad_escape_names_its_line(escape: str) -> None:
    with pytest.raises(InvalidSetting, match="line 3"):
        parse_properties(f"a=1\n\nb={escape}\n")


# lone surrogates are no characters: no file of text has them
@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))))
def test_what_is_written_is_read_back(properties: dict[str, str]) -> None:
    written = format_properties(properties)
    assert written.isascii()
    assert parse_properties(written) == properties
