"""Matches: shows the results that `python -m arena match` or `tournament` wrote.

Their folders are in the folder of the report and are named `matches` or `matches-NAME`.
"""

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from arena.players.dialogue import MOST_TURNS
from arena.stats import Estimate
from arena.tables import Cell, Metric, MetricRow, Section, Table
from rookery.errors import InvalidInput

logger = logging.getLogger(__name__)

_FILES = "matches*/match.json"
_PAIRS = ("0", "1/2", "1", "1 1/2", "2")
_NOTE = (
    "Each opening is played with both colours. Elo and its interval are from the points of such pairs. If "
    "one side won or lost everything, there is only a bound."
)
_LLM_CHESS_NOTE = (
    "The model plays Black from the starting position, up to 200 plies; the third wrong answer in a turn "
    "loses. Elo and its interval are from the points of single games. If one side won or lost everything, "
    "there is only a bound."
)


def match_sections(folder: Path, players: Mapping[str, Mapping[str, object]]) -> list[Section]:
    """A section for every match beside the report in `folder` that one of `players` has played: their
    descriptions by name. Matches of others, or of another player of such a name, are left out with a warning.
    Raises `InvalidInput` if a file is not the report of a match."""
    sections = [_section(path, players) for path in sorted(folder.glob(_FILES))]
    return [section for section in sections if section]


def _stranger(match: Mapping[str, Any], players: Mapping[str, Mapping[str, object]]) -> str:
    """Why a match was not played by these players; empty if it was."""
    described = {player["name"]: dict(player["version"]) for player in match["players"]}
    measured = list(described)[:1] if match.get("llm_chess") else list(described)
    if not players.keys() & set(measured):
        return f"no player of this evaluation is in it: {', '.join(measured)}"
    for name in sorted(described.keys() & players.keys()):
        answers = json.loads(json.dumps(players[name], default=str))
        played, answers = (
            {option: value for option, value in description.items() if option not in _OF_GAMES}
            for description in (described[name], answers)
        )
        if played != answers:
            return f"its player {name!r} is {played}, and that of this evaluation {answers}"
    return ""


def _section(path: Path, players: Mapping[str, Mapping[str, object]]) -> Section | None:
    try:
        match = json.loads(path.read_text())
        if stranger := _stranger(match, players):
            logger.warning("%s is left out: %s", path, stranger)
            return None
        pairings = {f"{e['player']} against {e['opponent']}": e for e in match["encounters"]}
        ratings = {p["name"]: p["elo"] for p in (match["ratings"] or {"players": []})["players"]}
        summaries = {p["name"]: {**p, "elo": ratings.get(p["name"])} for p in match["players"]}
        tables = [
            Table("encounters", "Results",
                  [_row(metric, value, pairings) for metric, value in _RESULTS
                   if not match.get("llm_chess") or metric.name not in _OF_PAIRS]),
            Table("players", "Players", [_row(metric, value, summaries) for metric, value in _PLAYERS]),
        ]  # fmt: skip
        title, note = f"Matches: after an illegal move {match['rules']['illegal']}", _NOTE
        if counts := match.get("llm_chess"):
            llm = {match["players"][0]["name"]: counts}
            rows = [_row(metric, _count(metric.name), llm) for metric in _LLM_CHESS if metric.name in counts]
            tables.append(Table("llm_chess", "As LLM Chess counts", rows))
            protocol = "in dialogues" if "dialogue" in match["players"][0]["version"] else "by prompts"
            title, note = f"LLM Chess, {protocol}", _LLM_CHESS_NOTE
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"not the report of a match: {str(path)!r}: {error!r}") from error
    facts = {"file": f"{path.parent.name}/{path.name}", "sprt": match.get("sprt")}
    return Section(path.parent.name, title, note, tables, facts)


def _row(metric: Metric, value: Callable[[Any], Estimate], of: Mapping[str, Any]) -> MetricRow:
    return MetricRow(metric, {name: Cell(value(item)) for name, item in of.items()})


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

_OF_GAMES = {"dialogue", "temperature", "top_p", "top_k", "max_tokens"}
"""The options of a model that games may have otherwise than questions."""

_OF_PAIRS = {"normalised_elo", *(f"pairs_{points}" for points in _PAIRS)}

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
