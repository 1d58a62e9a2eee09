"""Sharded maps: every version stays as it was, and equals a dictionary with the same history."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.metadata.shards import Draft, ShardedMap, shard_of_text

EMPTY: ShardedMap[str, int] = ShardedMap(shard_of_text)
steps = st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 9)), max_size=6))


@given(steps)
def test_versions_are_those_of_a_dictionary(history: list[list[tuple[str, int | None]]]) -> None:
    version, model = EMPTY, dict[str, int]()
    seen = [(version, model.copy())]
    for changes in history:
        draft = Draft(version)
        for key, value in changes:
            if value is None:
                draft.remove(key)
                model.pop(key, None)
            else:
                draft[key] = value
                model[key] = value
            assert draft.get(key) == model.get(key)
        version = draft.finish()
        seen.append((version, model.copy()))
    for version, model in seen:
        assert dict(version.items()) == model
        assert set(version) == set(model)
        assert sorted(version.values()) == sorted(model.values())
        assert len(version) == len(model)
        assert all((key in version) == (key in model) for key in "abcdefgh")
        anew = Draft(EMPTY)
        for key in sorted(model, reverse=True):
            anew[key] = model[key]
        assert anew.finish() == version


def test_a_version_shares_the_shards_that_did_not_change() -> None:
    draft = Draft(EMPTY)
    for number in range(2000):
        draft[str(number)] = number
    before = draft.finish()
    after_draft = Draft(before)
    after_draft["7"] = -7
    after = after_draft.finish()
    changed = [
        number
        for number, (old, new) in enumerate(zip(before.shards(), after.shards(), strict=True))
        if old is not new
    ]
    assert changed == [shard_of_text("7")]
    assert (before["7"], after["7"]) == (7, -7)


def test_a_draft_that_changes_nothing_is_the_same_version() -> None:
    assert Draft(EMPTY).finish() is EMPTY
