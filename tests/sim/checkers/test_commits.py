"""A commit that is lost, comes back, or shows too early is found."""

from __future__ import annotations

from barnabas.sim.checkers import Violation
from barnabas.sim.checkers.commits import check
from barnabas.sim.group_events import CommitDone, CommitRefused, CommitSent, CommittedSeen
from barnabas.sim.history import Event, History
from barnabas.sim.transaction_events import TxnEnded, TxnEnding
from tests.sim.checkers.story import only


def judged(*events: Event) -> list[Violation]:
    return check(History(events=events))


def sent(at: float, mark: str, offset: int, txn: str = "") -> CommitSent:
    return CommitSent(at, mark, "g", "t", 0, offset, -1, txn)


def committed(at: float, mark: str, offset: int) -> tuple[Event, Event]:
    return sent(at, mark, offset), CommitDone(at + 0.1, mark)


def seen(at: float, mark: str, offset: int, *, is_stable: bool = True) -> CommittedSeen:
    return CommittedSeen(at, at - 0.1, "watcher", "g", "t", 0, offset, mark, is_stable)


NOTHING = seen(5, "", -1)


def test_what_was_committed_is_read() -> None:
    assert judged(*committed(1, "a", 3), *committed(2, "b", 2), seen(3, "b", 2)) == []
    assert judged(sent(1, "a", 3), NOTHING) == []
    assert judged(sent(1, "a", 3), seen(3, "a", 3)) == []


def test_a_commit_that_is_lost() -> None:
    assert (
        "read no offset of t-0 in g, although 'a', offset 3"
        in only(judged(*committed(1, "a", 3), NOTHING)).what
    )


def test_an_earlier_commit_is_read() -> None:
    found = judged(*committed(1, "a", 3), *committed(2, "b", 4), seen(3, "a", 3))
    assert "read offset 3 with mark 'a' of t-0 in g, although 'b', offset 4" in only(found).what


def test_commits_whose_order_nobody_knows() -> None:
    both = (sent(1, "a", 3), sent(1.05, "b", 4), CommitDone(1.1, "a"), CommitDone(1.2, "b"))
    assert judged(*both, seen(3, "a", 3)) == []
    assert judged(*both, seen(3, "b", 4)) == []
    # one that was not answered may come later
    assert judged(sent(1, "a", 3), *committed(2, "b", 4), seen(3, "a", 3)) == []


def test_one_that_comes_back() -> None:
    both = (sent(1, "a", 3), sent(1.05, "b", 4))
    found = judged(*both, seen(2, "a", 3), seen(3, "b", 4), seen(4, "a", 3))
    assert "although at 3.000 s 'b', offset 4, had taken its place" in only(found).what
    assert judged(*both, seen(2, "a", 3), seen(3, "b", 4), seen(3.05, "a", 3)) == []


def test_what_was_never_committed() -> None:
    assert "nobody ever sent" in only(judged(seen(2, "z", 3))).what
    assert "sent with offset 3" in only(judged(sent(1, "a", 3), seen(2, "a", 4))).what
    refused = judged(sent(1, "a", 3), CommitRefused(1.5, "a", "ILLEGAL_GENERATION"), seen(2, "a", 3))
    assert "refused at 1.500 s: ILLEGAL_GENERATION" in only(refused).what


def test_offsets_in_a_transaction() -> None:
    pending = (sent(1, "a", 3, "x"), CommitDone(1.1, "a"))
    assert judged(*pending, NOTHING) == []
    assert "commit was not asked for" in only(judged(*pending, seen(2, "a", 3))).what
    asked = (*pending, TxnEnding(3, "x", True))
    assert judged(*asked, NOTHING) == judged(*asked, seen(5, "a", 3)) == []
    assert "commit was not asked for" in only(judged(seen(2.5, "a", 3), *asked)).what
    done = (*asked, TxnEnded(4, 3, "x", True))
    assert "although 'a'" in only(judged(*done, NOTHING)).what
    assert judged(*done, NOTHING._replace(is_stable=False)) == []
    aborted = (*pending, TxnEnding(3, "x", False), TxnEnded(4, 3, "x", False))
    assert "aborted" in only(judged(*aborted, seen(5, "a", 3))).what
    assert judged(*aborted, NOTHING) == []
