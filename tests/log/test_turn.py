"""Whose turn it is: one at a time, in the order of asking, whatever is cancelled meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.log.turn import Turn


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_turn_that_nobody_wants_is_taken_without_waiting() -> None:
    turn = Turn()
    entering = turn.__aenter__()
    with pytest.raises(StopIteration):
        entering.send(None)  # it ran through without giving way to the loop
    assert turn.is_taken


def test_turns_are_taken_one_at_a_time_in_the_order_of_asking() -> None:
    async def scenario() -> None:
        turn, seen, inside = Turn(), list[int](), 0

        async def visit(number: int) -> None:
            nonlocal inside
            async with turn:
                inside += 1
                assert inside == 1
                await settle()
                seen.append(number)
                inside -= 1

        await asyncio.gather(*(visit(number) for number in range(5)))
        assert seen == [0, 1, 2, 3, 4]
        assert not turn.is_taken

    asyncio.run(scenario())


def test_nobody_slips_in_before_those_who_wait() -> None:
    async def scenario() -> None:
        turn, seen = Turn(), list[str]()

        async def visit(name: str) -> None:
            async with turn:
                seen.append(name)

        async with turn:
            waiting = asyncio.create_task(visit("waited"))
            await settle()
        # the turn was handed over, still taken, although the one who waited has not run yet
        assert turn.is_taken
        await asyncio.gather(visit("came later"), waiting)
        assert seen == ["waited", "came later"]

    asyncio.run(scenario())


def test_who_gives_up_waiting_is_passed_over() -> None:
    async def scenario() -> None:
        turn, seen = Turn(), list[int]()

        async def visit(number: int) -> None:
            async with turn:
                seen.append(number)

        async with turn:
            tasks = [asyncio.create_task(visit(number)) for number in range(3)]
            await settle()
            tasks[0].cancel()
            tasks[1].cancel()
            await settle()
        await tasks[2]
        assert seen == [2]
        assert not turn.is_taken

    asyncio.run(scenario())


def test_a_turn_handed_to_a_cancelled_task_goes_to_the_next() -> None:
    async def scenario() -> None:
        turn, seen = Turn(), list[int]()

        async def visit(number: int) -> None:
            async with turn:
                seen.append(number)

        async with turn:
            tasks = [asyncio.create_task(visit(number)) for number in range(2)]
            await settle()
        tasks[0].cancel()  # it has the turn already, and does not know it yet
        await tasks[1]
        assert seen == [1]
        assert not turn.is_taken

    asyncio.run(scenario())


def test_an_error_inside_gives_the_turn_back() -> None:
    async def scenario() -> None:
        turn = Turn()
        with pytest.raises(ValueError, match="inside"):
            async with turn:
                raise ValueError("inside")
        assert not turn.is_taken

    asyncio.run(scenario())
