"""`barnabas story`: a failure played on three real nodes of this machine, told as it happens.

The nodes are processes with their data in a directory that is deleted at the end; clients write or read all
the while, and at the end everything is counted. Exit status 1 where the count is not right.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import textwrap
from collections.abc import Sequence
from pathlib import Path

from barnabas.cli.failures import FAILED, OK, CommandFailed
from barnabas.cli.options import Actions, command_parser, wants_json
from barnabas.cli.output import Output
from barnabas.cli.running import run_command
from barnabas.cli.stories.group_plays import GROUP_PLAYS
from barnabas.cli.stories.plays import NODE_PLAYS, Ending
from barnabas.cli.stories.stage import Stage
from barnabas.cli.stories.timeline import Moment, Timeline
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import BarnabasError
from barnabas.core.event_loop import new_event_loop

_EXAMPLES = """
barnabas story broker-death
barnabas story split-brain --svg split-brain.svg
barnabas story consumer-death --json
"""
_WIDTH = 100
PLAYS = {**NODE_PLAYS, **GROUP_PLAYS}


def main(arguments: Sequence[str]) -> int:
    """Play a story; the exit status."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "barnabas story",
        "Play a failure on three nodes of this machine, in less than a minute, and count: nothing is lost.",
        _EXAMPLES,
        is_connected=False,
    )
    actions = Actions(parser, is_connected=False)
    for name, play in PLAYS.items():
        action = actions.add(name, play.summary, f"barnabas story {name} --svg {name}.svg", _run)
        action.add_argument("--svg", metavar="FILE", help="draw what happened, as a picture")
        action.set_defaults(name=name)
    return parser


def _run(options: argparse.Namespace) -> int:
    play, output = PLAYS[options.name], Output(as_json=wants_json(options))
    picture = None if options.svg is None else Path(options.svg)
    if picture is not None and not picture.absolute().parent.is_dir():
        raise CommandFailed(f"there is no directory for {picture}", "name a file in one that is there")
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    clock = SystemClock()

    def tell(moment: Moment) -> None:
        if not output.as_json:
            output.line(f"{moment.at_s:7.2f} s  {moment.lane:<10}  {moment.text}")

    timeline = Timeline(clock, tell)
    if not output.as_json:
        output.line(f"{options.name}: {play.summary}; three nodes are started")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        ending = runner.run(_play(options.name, clock, timeline))
    if picture is not None:
        from barnabas.cli.stories.picture import draw

        picture.write_text(draw(f"{options.name}: {play.summary}", timeline, ending.lines))
    _tell_end(output, options.name, timeline, ending)
    return OK if ending.is_right else FAILED


async def _play(name: str, clock: Clock, timeline: Timeline) -> Ending:
    async with Stage(clock, timeline) as stage:
        try:
            return await PLAYS[name].run(stage)
        except (BarnabasError, TimeoutError) as error:
            raise CommandFailed(f"the story broke off: {error}", stage.last_words()) from error


def _tell_end(output: Output, name: str, timeline: Timeline, ending: Ending) -> None:
    why = PLAYS[name].why
    if output.as_json:
        output.document(
            {
                "story": name,
                "right": ending.is_right,
                "moments": [moment.document() for moment in timeline.moments],
                "result": ending.facts,
                "why": why,
            }
        )
        return
    output.say()
    for line in ending.lines:
        output.say(line)
    output.say()
    output.say(textwrap.fill(why, _WIDTH))
