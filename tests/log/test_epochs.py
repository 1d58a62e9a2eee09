from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import InvariantViolation
from barnabas.log.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, LeaderEpochs

UNDEFINED = (UNDEFINED_EPOCH, UNDEFINED_OFFSET)


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(entries)


def test_nothing_is_known_of_an_empty_log() -> None:
    empty = epochs()
    assert empty.entries == ()
    assert (empty.latest, empty.latest_epoch) == (None, None)
    assert empty.end_offset_for(0, 10) == UNDEFINED
    assert empty.epoch_for_offset(0) is None
    assert not empty.truncate_from_end(0)
    assert not empty.truncate_from_start(5)
    assert not empty.clear()


def test_an_epoch_is_assigned_once() -> None:
    known = epochs()
    assert known.assign(2, 6)
    assert not known.assign(2, 6)
    assert not known.assign(2, 9)
    assert known.assign(3, 9)
    assert known.entries == ((2, 6), (3, 9))
    assert (known.latest, known.latest_epoch) == ((3, 9), 3)


@pytest.mark.parametrize(
    ("assigned", "left"),
    [
        ((3, 9), [(1, 0), (3, 9)]),  # epoch 2 wrote nothing
        ((3, 8), [(1, 0), (3, 8)]),  # the log was truncated into epoch 2
        ((2, 8), [(1, 0), (2, 8)]),  # the latest epoch moves back
        ((1, 12), [(1, 12)]),  # an older leader writes: what is newer never was
        ((0, 20), [(0, 20)]),
        ((5, 0), [(5, 0)]),
    ],
)
def test_what_contradicts_a_new_entry_gives_way(
    assigned: tuple[int, int], left: list[tuple[int, int]]
) -> None:
    known = epochs((1, 0), (2, 9))
    assert known.assign(*assigned)
    assert list(known.entries) == left


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_impossible_entries_stop_the_node(entry: tuple[int, int]) -> None:
    with pytest.raises(InvariantViolation):
        epochs().assign(*entry)


@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (-1, UNDEFINED),
        (0, (0, 5)),  # before everything known: its end is where the known begins
        (2, (2, 10)),
        (3, (2, 10)),  # never seen: the one before it
        (4, (4, 20)),
        (6, (6, 33)),  # the latest ends with the log
        (7, UNDEFINED),
    ],
)
def test_end_offset_for(requested: int, answer: tuple[int, int]) -> None:
    assert epochs((2, 5), (4, 10), (6, 20)).end_offset_for(requested, 33) == answer


def test_truncation_at_the_end() -> None:
    known = epochs((2, 5), (4, 10), (6, 20))
    assert not known.truncate_from_end(21)
    assert known.truncate_from_end(20)
    assert known.entries == ((2, 5), (4, 10))
    assert known.truncate_from_end(6)
    assert known.entries == ((2, 5),)
    assert known.truncate_from_end(5)
    assert known.entries == ()


def test_truncation_at_the_start_keeps_the_straddling_epoch() -> None:
    known = epochs((2, 5), (4, 10), (6, 20))
    assert not known.truncate_from_start(4)
    assert not known.truncate_from_start(5)
    assert known.truncate_from_start(12)
    assert known.entries == ((4, 12), (6, 20))
    assert known.truncate_from_start(20)
    assert known.entries == ((6, 20),)
    assert known.truncate_from_start(50)
    assert known.entries == ((6, 50),)


# The model: the log itself, as the list of the epoch that wrote each offset from `start` on.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("cut end"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("cut start"), st.integers(0, 20), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_epochs_describe_the_log_they_were_told_of(steps: list[tuple[str, int, int]]) -> None:
    known, start, log = LeaderEpochs(), 0, list[int]()
    for step, number, count in steps:
        if step == "write":
            epoch = (log[-1] if log else 0) + number
            known.assign(epoch, start + len(log))
            log += [epoch] * count
        elif step == "cut end":
            end = min(max(number, start), start + len(log))
            del log[end - start :]
            known.truncate_from_end(end)
        else:
            new_start = min(max(number, start), start + len(log))
            del log[: new_start - start]
            start = new_start
            known.truncate_from_start(start)
        end = start + len(log)
        # an epoch whose records are all gone from the front may linger at the very end of the log
        assert [entry for entry in known.entries if entry.start_offset < end] == first_offsets(log, start)
        assert [known.epoch_for_offset(start + i) for i in range(len(log))] == log
        for epoch in set(log):
            assert known.end_offset_for(epoch, end) == (
                epoch,
                start + max(i for i, e in enumerate(log) if e == epoch) + 1,
            )


def first_offsets(log: list[int], start: int) -> list[tuple[int, int]]:
    return [(epoch, start + log.index(epoch)) for epoch in sorted(set(log))]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=20))
def test_entries_always_ascend(assigned: list[tuple[int, int]]) -> None:
    known = LeaderEpochs()
    for entry in assigned:
        changed = known.assign(*entry)
        assert (known.latest == entry) or not changed
    pairs = list(zip(known.entries, known.entries[1:], strict=False))
    assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairs)
    assert LeaderEpochs(known.entries).entries == known.entries
