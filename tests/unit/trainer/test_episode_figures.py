"""How episodes of several turns went, against figures worked out by hand."""

from dataclasses import replace

import pytest
from prometheus_client import REGISTRY

from rookery.trace import Trace, TraceGroup
from services.trainer.records.describe import episodes
from services.trainer.records.report import _set_gauges
from tests.unit.trainer.groups import make_group


def group(episode: str, *traces: list[tuple[str, str, bool]]) -> TraceGroup:
    """A group whose turns have a role, an observation and perhaps a verdict."""
    made = make_group(0, size=len(traces))
    (like,) = made.traces[0].turns
    return replace(
        made,
        position=replace(made.position, episode=episode),
        traces=tuple(
            Trace(
                str(number),
                tuple(
                    replace(like, role=role, observation=said, verdict=like.verdict if answers else None)
                    for role, said, answers in turns
                ),
            )
            for number, turns in enumerate(traces)
        ),
    )


def test_moves_alone_have_no_figures_of_episodes() -> None:
    assert episodes([make_group(0, size=2)]) == {}


def test_results_are_counted_by_opponent_for_the_colour_of_the_policy() -> None:
    white, black = ("white", "e5", True), ("black", "e4", True)
    engine = group(
        "game,opponent=uci:/bin/engine,nodes=9,colours=both",
        [white, ("white", "Qh4: 0-1, checkmate", True)],
        [black, black, ("black", ": 0-1, checkmate", True)],
        [("white", ": 1/2-1/2, ply limit", True)],
        [("black", ": 1-0, illegal move", True)],
    )
    self_play = group("game,opponent=self", [("white", ": 1-0, checkmate", True)])
    found = episodes([engine, self_play])
    assert found == {
        "episode_turns": pytest.approx(8 / 5),
        "episode_turns_max": 3,
        "won_uci": 0.25,
        "drawn_uci": 0.25,
        "lost_uci": 0.5,
    }
    for name, value in found.items():
        _set_gauges(name, value)
    exported = {
        name: REGISTRY.get_sample_value("rookery_learning", {"statistic": name})
        for name in ("lost_uci", "episode_turns_max")
    }
    assert exported == {"lost_uci": 0.5, "episode_turns_max": 3}


def test_calls_are_counted_for_each_move() -> None:
    call, answer = ("", "Legal moves: e4", False), ("", "", True)
    assert episodes([group("tools,turns=4", [call, call, answer], [answer])]) == {
        "episode_turns": 2.0,
        "episode_turns_max": 3,
        "calls_per_move": 1.0,
    }
