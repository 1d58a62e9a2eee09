"""Histograms and pages: what is counted comes out again, in a form that Prometheus' own parsers read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from barnabas.core.histogram import BUCKETS, WINDOW_SECONDS, Histogram, bucket_of
from barnabas.core.metrics import Page, read_families

FAMILIES = read_families("""\
letters_total counter castle,messenger Letters brought.
waiting gauge - Who waits.
way_seconds histogram castle How long the way took.
answer_ms summary castle How long the answer took.""")


@given(st.floats(min_value=0, max_value=1e9))
def test_a_duration_lies_in_its_bucket(seconds: float) -> None:
    bucket = bucket_of(seconds)
    microseconds = seconds * 1e6
    assert microseconds <= 2 ** (bucket / 4) * (1 + 1e-9)
    assert bucket == 0 or microseconds >= 2 ** ((bucket - 1) / 4) * (1 - 1e-9)


@pytest.mark.parametrize("seconds", [1e30, 0.0])
def test_the_longest_and_the_shortest_have_a_bucket(seconds: float) -> None:
    histogram = Histogram()
    histogram.observe(seconds)
    assert histogram.count == 1
    assert histogram.counts[BUCKETS - 1 if seconds else 0] == 1


@given(st.lists(st.floats(min_value=1e-6, max_value=1e4), min_size=1, max_size=200))
def test_quantiles_are_at_most_a_fifth_too_large(durations: list[float]) -> None:
    histogram = Histogram()
    for seconds in durations:
        histogram.observe(seconds)
    in_order = sorted(durations)
    for quantile, told in zip((0.5, 0.99), histogram.recent_quantiles(0.0, (0.5, 0.99)), strict=True):
        true = in_order[math.ceil(quantile * len(in_order)) - 1]
        assert true * (1 - 1e-9) <= told <= true * 1.19 + 1e-6


def test_quantiles_are_those_of_the_last_minutes() -> None:
    histogram = Histogram()
    histogram.observe(1.0)
    (told,) = histogram.recent_quantiles(0.0, (0.5,))
    assert told == pytest.approx(1.0, rel=0.2)
    histogram.recent_quantiles(WINDOW_SECONDS, (0.5,))
    histogram.observe(0.001)
    (told,) = histogram.recent_quantiles(2 * WINDOW_SECONDS, (0.5,))
    assert told == pytest.approx(0.001, rel=0.2)
    histogram.recent_quantiles(3 * WINDOW_SECONDS, (0.5,))
    (told,) = histogram.recent_quantiles(4 * WINDOW_SECONDS, (0.5,))
    assert math.isnan(told)
    assert histogram.count == 2


def a_page() -> Page:
    page = Page(FAMILIES)
    page.add("letters_total", 7, "west", "barnabas")
    page.add("letters_total", 9)
    page.add("waiting", 1.5)
    histogram = Histogram()
    for seconds in (0.0001, 0.002, 0.5):
        histogram.observe(seconds)
    page.add_histogram("way_seconds", histogram, (8, 16), "west")
    page.add_summary("answer_ms", histogram, 0.0, "west", scale=1000)
    return page


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_page_is_read_by_the_parsers_of_prometheus(openmetrics: bool) -> None:
    text = b"".join(a_page().render(openmetrics=openmetrics)).decode()
    families = {each.name: each for each in (parse_openmetrics if openmetrics else parse_text)(text)}
    assert {name: each.type for name, each in families.items()} == {
        "letters": "counter",
        "waiting": "gauge",
        "way_seconds": "histogram",
        "answer_ms": "summary",
    }
    letters = families["letters"].samples
    assert [(each.name, each.labels, each.value) for each in letters] == [
        ("letters_total", {"castle": "west", "messenger": "barnabas"}, 7),
        ("letters_total", {}, 9),
    ]
    way = {(each.name, each.labels.get("le")): each.value for each in families["way_seconds"].samples}
    assert way["way_seconds_bucket", "0.000256"] == 1
    assert way["way_seconds_bucket", "0.065536"] == 2
    assert way["way_seconds_bucket", "+Inf"] == way["way_seconds_count", None] == 3
    assert way["way_seconds_sum", None] == pytest.approx(0.5021)
    answers = {each.labels.get("quantile"): each.value for each in families["answer_ms"].samples}
    assert answers["0.50"] == pytest.approx(2.0, rel=0.2)
    assert answers["0.999"] == pytest.approx(500, rel=0.2)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r"), min_size=1))
def test_labels_may_be_anything(text: str) -> None:
    page = Page(FAMILIES)
    page.add("letters_total", 1, text)
    (family,) = parse_text(b"".join(page.render()).decode())
    assert family.samples[0].labels == {"castle": text}


def test_what_has_no_samples_is_not_shown_and_nothing_is_nan() -> None:
    page = Page(FAMILIES)
    page.add_summary("answer_ms", Histogram(), 0.0, "west")
    text = b"".join(page.render()).decode()
    assert "letters" not in text
    (family,) = parse_text(text)
    assert all(math.isnan(each.value) for each in family.samples if "quantile" in each.labels)


def test_an_unknown_name_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        Page(FAMILIES).add("no_such_thing", 1)
