"""Waiting: for so long, and no longer."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.sim.loop import LoopClock, run
from barnabas.transport.errors import TimedOut
from barnabas.transport.waiting import within


@pytest.mark.parametrize(("seconds", "told"), [(1.99996, "2"), (1.99995, "2"), (0.5, "0.5"), (60.0, "60")])
def test_a_limit_is_told_the_same_whatever_is_left_of_it(seconds: float, told: str) -> None:
    """Brokers log a trouble once, as long as it is told in the same words."""

    async def main() -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimedOut, match=f"^an answer took longer than {told} s$"):
            await within(LoopClock(), seconds, asyncio.sleep(100), "an answer")
        assert asyncio.get_running_loop().time() - began == pytest.approx(seconds)

    run(main())
