"""Matches: shows the results that `python -m arena match` or `tournament` wrote.

Their folders are in the folder of the report and are named `matches` or `matches-NAME`.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from arena.players.dialogue import MOST_TURNS
from arena.stats import Estimate
from arena.tables import Cell, Metric, Row, Section, Table
from rookery.errors import InvalidInput

_FILES = "matches*/match.json"
_PAIRS = ("0", "1/2", "1", "1 1/2", "2")
_NOTE = (
    "Each opening is played with both colours. Elo and its interval are from the points of such pairs. If "
    "one side won or lost everything, there is only a bound."
)


def match_sections(folder: Path) -> list[Section]:
    """A section for every match beside the report in `folder`. Raises `InvalidInput` if a file is not the
    report of a match."""
    return [_section(path) for path in sorted(folder.glob(_FILES))]


def _section(path: Path) -> Section:
    try:
        match = json.loads(path.read_text())
        pairings = {f"{e['player']} against {e['opponent']}": e for e in match["encounters"]}
        ratings = {p["name"]: p["elo"] for p in (match["ratings"] or {"players": []})["players"]}
        players = {p["name"]: {**p, "elo": ratings.get(p["name"])} for p in match["players"]}
        tables = [
            Table("encounters", "Results", [_row(metric, value, pairings) for metric, value in _RESULTS]),
            Table("players", "Players", [_row(metric, value, players) for metric, value in _PLAYERS]),
        ]
        if counts := match.get("llm_chess"):
            llm = {match["players"][0]["name"]: counts}
            rows = [_row(metric, _count(metric.name), llm) for metric in _LLM_CHESS if metric.name in counts]
            tables.append(Table("llm_chess", "As LLM Chess counts", rows))
        title = f"Matches: after an illegal move {match['rules']['illegal']}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"not the report of a match: {str(path)!r}: {error!r}") from error
    facts = {"file": f"{path.parent.name}/{path.name}", "sprt": match.get("sprt")}
    return Section(path.parent.name, title, _NOTE, tables, facts)


def _row(metric: Metric, value: Callable[[Any], Estimate], of: Mapping[str, Any]) -> Row:
    return Row(metric, {name: Cell(value(item)) for name, item in of.items()})


def _elo(elo: Mapping[str, float | None] | None) -> Estimate:
    if elo is None:
        return Estimate(None, None)
    low, high = elo["low"], elo["high"]
    if low is high is None:
        return Estimate(elo["value"], None)
    return Estimate(elo["value"], (-math.inf if low is None else low, math.inf if high is None else high))


def _count(*place: str | int) -> Callable[[Any], Estimate]:
    return lambda item: Estimate(float(reduce(getitem, place, item)), None)


def _first_try_legality(player: Any) -> Estimate:
    tries = player["first_tries"]
    return Estimate(tries.get("legal", 0) / sum(tries.values()) if tries else None, None)


def _whole(name: str, title: str, explanation: str = "") -> Metric:
    return Metric(name, title, explanation, "whole", "neither")


_GAMES = tuple((_whole(name, name.capitalize()), _count(name)) for name in ("wins", "draws", "losses"))

_RESULTS: Iterable[tuple[Metric, Callable[[Any], Estimate]]] = (
    (_whole("elo", "Elo", "difference in strength"), lambda e: _elo(e["elo"])),
    (
        _whole("strict_elo", "Elo, illegal moves lose", "if the first one of a game had lost it"),
        lambda e: _elo(e.get("strict_elo")),  # older reports do not have it
    ),
    (_whole("normalised_elo", "Normalised Elo"), lambda e: _elo(e["normalised_elo"])),
    (Metric("superiority", "Superiority", "likelihood that it is stronger"), _count("superiority")),
    *_GAMES,
    *(
        (_whole(f"pairs_{points}", f"Pairs with {points}", "points"), _count("pairs", "counts", i))
        for i, points in enumerate(_PAIRS)
    ),
)

_LLM_CHESS = (
    Metric("win_loss", "Win or loss", "0 to 1: half of wins minus losses, plus a half", "number", "neither"),
    Metric("wrong_actions_per_100moves", "Wrong actions", "per 100 moves of both sides", "count", "neither"),
    Metric("wrong_moves_per_100moves", "Wrong moves", "per 100 moves of both sides", "count", "neither"),
    _whole("llm_max_turns", "Dialogues without a move", f"after {MOST_TURNS} answers"),
    Metric("average_moves", "Moves a game", "of both sides", "count", "neither"),
    Metric(
        "material_diff_llm_minus_rand", "Material", "more than the opponent's, at the end", "count", "neither"
    ),
)

_PLAYERS: Iterable[tuple[Metric, Callable[[Any], Estimate]]] = (
    (_whole("rating", "Elo", "all games fitted together"), lambda p: _elo(p["elo"])),
    (
        Metric("first_try_legality", "Legal at once", "share of turns whose first answer is legal"),
        _first_try_legality,
    ),
    *_GAMES,
    (_whole("forfeits", "Forfeits", "games lost by an illegal move"), _count("forfeits")),
    (_whole("replaced", "Replaced moves", "random legal moves instead of illegal ones"), _count("replaced")),
)
