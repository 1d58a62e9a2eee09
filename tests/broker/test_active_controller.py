"""The active controller: it decides ahead of the disk, and tells nothing that is not committed."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from barnabas.broker.quorum.driver import MetadataLogFailed
from barnabas.broker.quorum.quorum import METADATA_LOG
from barnabas.controller.decisions import Decision, NotController, Refused
from barnabas.core.errors import StorageError
from barnabas.log.partition import PartitionLog
from barnabas.metadata.delta import Delta
from barnabas.metadata.image import ClusterImage
from tests.broker.test_formatting import CHECKPOINT
from tests.broker.test_quorum import FIRST, create, new_disk, running, start, topic


class HeldFlush:
    """Lets the flushes of a log wait until `release`, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.release = asyncio.Event()
        flush = PartitionLog.flush

        async def held(log: PartitionLog, up_to: int | None = None) -> None:
            self.count += 1
            await self.release.wait()
            await flush(log, up_to)

        monkeypatch.setattr(PartitionLog, "flush", held)


def names(image: ClusterImage) -> Decision[list[str]]:
    return Decision([], sorted(image.topics_by_name))


def refused(image: ClusterImage) -> Decision[None]:
    raise Refused("TOPIC_ALREADY_EXISTS", str(sorted(image.topics_by_name)))


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_commands_do_not_wait_for_the_flush_of_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            flushes = HeldFlush(monkeypatch)
            first = asyncio.ensure_future(create(quorum, "first"))
            await turns()
            assert flushes.count == 1
            others = [asyncio.ensure_future(create(quorum, f"t{number}")) for number in range(100)]
            await turns()
            assert quorum.controller.next_offset == FIRST + 101
            assert not any(each.done() for each in (first, *others))
            assert len(quorum.metadata.image.topics_by_name) == 0
            flushes.release.set()
            await asyncio.gather(first, *others)
            assert flushes.count == 2  # all that came meanwhile went together
            assert len(quorum.metadata.image.topics_by_name) == 101

    disk = new_disk()
    asyncio.run(run())


def test_an_answer_without_records_waits_for_what_it_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            assert await quorum.controller.submit(names) == []
            flushes = HeldFlush(monkeypatch)
            waiting = [
                asyncio.ensure_future(each)
                for each in (
                    create(quorum, "letters"),
                    quorum.controller.submit(names),
                    quorum.controller.submit(refused),
                )
            ]
            await turns()
            assert not any(each.done() for each in waiting)
            flushes.release.set()
            said = await asyncio.gather(*waiting, return_exceptions=True)
            assert said[:2] == ["letters", ["letters"]]
            assert str(said[2]) == "['letters']"

    disk = new_disk()
    asyncio.run(run())


def test_changes_are_published_in_order_and_before_their_answers() -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            seen: list[object] = []

            def published(image: ClusterImage, delta: Delta) -> None:
                assert delta.base.offset < image.offset <= quorum.driver.high_watermark
                seen.extend(image.topics_by_id[each].name for each in delta.changed_topics)

            async def ask(name: str) -> None:
                await create(quorum, name)
                assert name in quorum.metadata.image.topics_by_name
                assert name in seen

            quorum.metadata.subscribe(published)
            await asyncio.gather(*(ask(f"t{number}") for number in range(30)))
            assert seen == [f"t{number}" for number in range(30)]

    disk = new_disk()
    asyncio.run(run())


@pytest.mark.parametrize("seen_by", [names, refused])
def test_a_failed_append_takes_back_all_that_was_decided(
    seen_by: Callable[[ClusterImage], Decision[object]],
) -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, failures):
            await create(quorum, "kept")
            disk.fail("append", errno.ENOSPC, path_glob="*.log", times=1)
            said = await asyncio.gather(
                create(quorum, "lost"),
                create(quorum, "lost too"),
                quorum.controller.submit(seen_by),
                return_exceptions=True,
            )
            assert [type(each) for each in said] == [NotController] * 3
            assert isinstance(said[0], NotController)
            assert "No space left" in str(said[0])
            assert isinstance(said[0].__cause__, StorageError)
            assert await quorum.controller.submit(names) == ["kept"]
            assert quorum.controller.next_offset == quorum.driver.end_offset == FIRST + 1
            await create(quorum, "lost")  # its id is free again
            assert not failures
        async with running(disk) as (quorum, _, _, _):
            assert sorted(quorum.metadata.image.topics_by_name) == ["kept", "lost"]

    disk = new_disk()
    asyncio.run(run())


def test_offsets_are_fixed_when_a_command_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            flushes, controller = HeldFlush(monkeypatch), quorum.controller
            offsets: list[int] = []

            def command(image: ClusterImage, count: int) -> Decision[None]:
                offsets.append(controller.next_offset)
                return Decision([topic(f"{count}-{number}") for number in range(count)], None)

            waiting = [
                asyncio.ensure_future(controller.submit(lambda image, n=count: command(image, n)))
                for count in (1, 3, 2)
            ]
            await turns()
            assert offsets == [FIRST, FIRST + 1, FIRST + 4]
            flushes.release.set()
            await asyncio.gather(*waiting)
            assert quorum.driver.end_offset == FIRST + 6

    disk = new_disk()
    asyncio.run(run())


def test_new_voters_are_in_force_when_they_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        await disk.remove(CHECKPOINT)
        async with running(disk) as (quorum, _, _, _):
            disk.fail("append", errno.ENOSPC, path_glob="*.log", times=1)
            with pytest.raises(NotController):
                await quorum.controller.raise_kraft_version()
            assert quorum.driver.kraft_version == 0
            flushes = HeldFlush(monkeypatch)
            raising = asyncio.ensure_future(quorum.controller.raise_kraft_version())
            await turns()
            assert quorum.driver.kraft_version == 0
            flushes.release.set()
            await raising
            assert quorum.driver.kraft_version == 1
            assert quorum.metadata.image.offset == quorum.driver.high_watermark

    disk = new_disk()
    asyncio.run(run())


def test_a_stop_finishes_what_was_decided_and_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            flushes = HeldFlush(monkeypatch)
            waiting = asyncio.ensure_future(create(quorum, "letters"))
            await turns()
            closing = asyncio.ensure_future(quorum.close())
            await turns()
            with pytest.raises(NotController):
                await create(quorum, "late")
            assert not closing.done()
            flushes.release.set()
            await closing
            assert await waiting == "letters"

    disk = new_disk()
    asyncio.run(run())


def test_commands_that_come_together_may_exceed_a_segment() -> None:
    async def run() -> None:
        config = replace(METADATA_LOG, segment_bytes=6_000)
        async with running(disk, config=config) as (quorum, _, _, _):
            await asyncio.gather(
                *(
                    quorum.controller.submit(
                        lambda image, n=number: Decision([topic(f"{n}-{each}") for each in range(40)], None)
                    )
                    for number in range(10)
                )
            )
            assert len(quorum.metadata.image.topics_by_name) == 400
            with pytest.raises(StorageError, match=r"metadata\.log\.segment\.bytes"):
                await quorum.controller.submit(
                    lambda image: Decision([topic(f"large-{each}") for each in range(400)], None)
                )
            await create(quorum, "after")
            assert len(quorum.metadata.image.topics_by_name) == 401

    disk = new_disk()
    asyncio.run(run())


def test_a_write_that_is_cancelled_before_it_begins_answers_all() -> None:
    async def run() -> None:
        quorum, _, _, failures = await start(disk)
        waiting = asyncio.ensure_future(create(quorum, "letters"))
        await asyncio.sleep(0)
        assert quorum.driver._carrying_out is not None
        quorum.driver._carrying_out.cancel()
        with pytest.raises(MetadataLogFailed):
            await waiting
        assert len(failures) == 1

    disk = new_disk()
    asyncio.run(run())


def test_a_service_that_cannot_follow_stops_the_node_and_sees_no_later_change() -> None:
    async def run() -> None:
        quorum, _, _, failures = await start(disk)
        seen: list[int] = []

        def fail(image: ClusterImage, delta: Delta) -> None:
            seen.append(image.offset)
            raise KeyError("unknown")

        quorum.metadata.subscribe(fail)
        said = await asyncio.gather(create(quorum, "a"), create(quorum, "b"), return_exceptions=True)
        assert said == ["a", "b"]  # both are committed
        assert seen == [FIRST + 1]
        assert len(failures) == 1
        assert "could not follow" in str(failures[0])

    disk = new_disk()
    asyncio.run(run())


def test_a_leader_that_resigns_answers_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with running(disk) as (quorum, _, _, _):
            flushes = HeldFlush(monkeypatch)
            waiting = asyncio.ensure_future(create(quorum, "letters"))
            await turns()
            quorum.driver.resign()
            with pytest.raises(NotController, match="does not lead epoch 1 any more"):
                await waiting
            with pytest.raises(NotController):
                await create(quorum, "later")
            flushes.release.set()

    disk = new_disk()
    asyncio.run(run())
