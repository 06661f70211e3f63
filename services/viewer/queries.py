"""Questions to the index: pages of groups, histograms, versions, positions, two runs beside each other."""

import math
from collections import Counter
from itertools import pairwise
from typing import Any, Literal

from rookery.errors import InvalidInput
from rookery.intervals import Z95
from rookery.trace import Outcome
from services.viewer.filters import Condition, Filter
from services.viewer.index import Index, Row

PAGE = 40
"""Groups on a page."""
BINS = 40
"""Bars of the histogram."""
BUCKETS = 60
"""The most points of a series over versions."""

Sort = Literal[
    "time", "reward", "spread", "regret", "length", "surprise", "age", "version", "outcome", "phase",
    "component",
]  # fmt: skip

_SORTS: dict[Sort, str] = {
    "time": "g",
    "reward": "reward_mean",
    "spread": "reward_std",
    "regret": "regret_max",
    "length": "length_max",
    "surprise": "surprise_max",
    "age": "age",
    "version": "version",
    "outcome": "legal",
    "phase": "array_position(['opening', 'middlegame', 'endgame'], phase)",
    "component": "component",
}

_PIECE = (
    "CASE WHEN {san}[1] IN ('N', 'B', 'R', 'Q', 'K') THEN {san}[1] WHEN {san}[1] = 'O' THEN 'K' ELSE 'P' END"
)


def extent(index: Index, run: str) -> Row:
    """How much of a run is indexed: counts, versions, the style of its prompts, names of components."""
    (counts,) = index.query(
        "SELECT count(*) AS groups, count(step) AS trained, sum(size) AS answers, "
        "list_sort(list_distinct(list(kind))) AS kinds, "
        "min(version) AS first_version, max(version) AS last_version, any_value(style) AS style "
        "FROM groups WHERE run = ?",
        [run],
    )
    names = index.query(
        "SELECT DISTINCT unnest(map_keys(components)) AS name "
        "FROM (SELECT components FROM answers WHERE run = ? LIMIT 10000) ORDER BY 1",
        [run],
    )
    return counts | {"components": [row["name"] for row in names]}


def page(index: Index, run: str, chosen: Filter, *, sort: Sort, descending: bool, number: int) -> list[Row]:
    """Groups of a page, each with its answers; `matched` says whether an answer passes the filter.

    By `component`, they are sorted by the mean of the component that the filter names. Raises `InvalidInput`
    if they are to be sorted by a component, and the filter names none.
    """
    where = chosen.groups(run)
    order = f"{_SORTS[sort]} {'DESC' if descending else 'ASC'} NULLS LAST, g DESC"
    join, parameters = "", tuple[str, ...]()
    if sort == "component":
        if not chosen.component:
            raise InvalidInput("sort=component needs component=NAME")
        join = (
            "JOIN (SELECT g, avg(components[?]) AS component FROM answers WHERE run = ? GROUP BY g) USING (g)"
        )
        parameters = (chosen.component, run)
    groups = index.query(
        f"SELECT * FROM groups g {join} WHERE {where.sql} ORDER BY {order} LIMIT {PAGE} OFFSET ?",
        [*parameters, *where.values, number * PAGE],
    )
    return with_answers(index, groups, chosen.of_answers(run))


def with_answers(index: Index, groups: list[Row], passes: Condition) -> list[Row]:
    """The groups, each with its answers."""
    if not groups:
        return []
    answers_by_group: dict[int, list[Row]] = {group["g"]: [] for group in groups}
    answers = index.query(
        f"SELECT a.g, i, episode, turn, result, reward, advantage, outcome, regret, length, surprise, san, "
        f"({passes.sql}) AS matched "
        f"FROM answers a WHERE a.g IN ({', '.join(map(str, answers_by_group))}) ORDER BY a.g, i",
        passes.values,
    )
    for answer in answers:
        answers_by_group[answer.pop("g")].append(answer)
    return [group | {"answers": answers_by_group[group["g"]]} for group in groups]


def summary(index: Index, run: str, chosen: Filter) -> dict[str, Any]:
    """Counts, outcomes and the histogram of rewards. The outcomes ignore the filter's outcomes, and the
    histogram its range of rewards, so that both also show what could be chosen instead."""
    (ends,) = index.query(
        "SELECT min(reward_min) AS low, max(reward_max) AS high, sum(size) AS answers "
        "FROM groups WHERE run = ?",
        [run],
    )
    low, high = ends["low"] or 0.0, ends["high"] or 0.0
    width = (high - low) / BINS or 1.0
    bounds = {name: getattr(chosen, name) for name in ("reward_min", "reward_max", "reward_below")}
    others = chosen.model_copy(update={"outcome": [], **dict.fromkeys(bounds)}).answers(run)
    inside = Filter(**bounds).of_answers(run)
    # The quotient is rounded, so the bin is then moved to the edges that the links of the bars have.
    cells = index.query(
        "SELECT outcome, floor((reward - ?) / ?)::INTEGER AS n, "
        f"least({BINS - 1}, n - (reward < ? + n * ?)::INTEGER + (reward >= ? + (n + 1) * ?)::INTEGER) "
        "AS bin, "
        f"({inside.sql}) AS inside, count(*) AS count, sum(reward) AS reward, "
        "count(reward) AS rewarded, sum(regret) AS regret, count(regret) AS rated "
        f"FROM answers a WHERE {others.sql} GROUP BY ALL",
        [*[low, width] * 3, *inside.values, *others.values],
    )
    edges = [low + number * width for number in range(BINS + 1)]
    bins = [{"low": left, "high": right, "legal": 0, "other": 0} for left, right in pairwise(edges)]
    outcomes: Counter[str] = Counter()
    for cell in cells:
        if cell["n"] is not None and (not chosen.outcome or cell["outcome"] in chosen.outcome):
            bins[cell["bin"]]["legal" if cell["outcome"] == Outcome.LEGAL else "other"] += cell["count"]
        if cell["inside"]:
            outcomes[cell["outcome"]] += cell["count"]
    passing = [c for c in cells if c["inside"] and (not chosen.outcome or c["outcome"] in chosen.outcome)]
    where = chosen.groups(run)
    (groups,) = index.query(f"SELECT count(*) AS groups FROM groups g WHERE {where.sql}", where.values)
    return {
        **groups,
        **_totals(passing),
        "all_answers": ends["answers"] or 0,
        "outcomes": [{"outcome": name, "count": count} for name, count in outcomes.most_common()],
        "bins": bins,
    }


def _totals(cells: list[Row]) -> dict[str, Any]:
    answers = sum(cell["count"] for cell in cells)
    legal = sum(cell["count"] for cell in cells if cell["outcome"] == Outcome.LEGAL)
    rewarded = sum(cell["rewarded"] for cell in cells)
    rated = sum(cell["rated"] for cell in cells)
    return {
        "answers": answers,
        "reward": sum(cell["reward"] or 0.0 for cell in cells) / rewarded if rewarded else None,
        "regret": sum(cell["regret"] or 0.0 for cell in cells) / rated if rated else None,
        "legal": legal / answers if answers else None,
    }


def collapse(index: Index, run: str) -> dict[str, Any]:
    """Signs of collapse over versions: shares of equal answers and rewards, surprise, moves by piece."""
    (ends,) = index.query("SELECT min(version) AS low, max(version) AS high FROM groups WHERE run = ?", [run])
    if ends["low"] is None:
        return {
            "versions": [],
            "series": {},
            "quantiles": {},
            "outcomes": {},
            "pieces": {},
            "best_pieces": {},
        }
    width = math.ceil((ends["high"] - ends["low"] + 1) / BUCKETS)
    bucket = f"(version - {ends['low']}) // {width}"
    rows = index.query(
        f"SELECT {bucket} AS bucket, min(version) AS version, "
        "avg((reward_std = 0)::INTEGER) AS zero_variance, "
        "avg(distinct_texts / size) AS distinct_answers, avg(distinct_moves / size) AS distinct_moves, "
        "-sum(logprob) / sum(tokens) AS surprise FROM groups WHERE run = ? GROUP BY 1 ORDER BY 1",
        [run],
    )
    names = ("zero_variance", "distinct_answers", "distinct_moves", "surprise")
    buckets = [row["bucket"] for row in rows]
    measures = ("reward", "advantage", "length", "surprise")
    quantiles = {
        row["bucket"]: row
        for row in index.query(
            f"SELECT {bucket} AS bucket, "
            + ", ".join(f"quantile_cont({name}, [0.1, 0.5, 0.9]) AS {name}" for name in measures)
            + " FROM answers WHERE run = ? GROUP BY 1",
            [run],
        )
    }
    outcomes = index.query(
        f"SELECT {bucket} AS bucket, outcome, count(*) AS count FROM answers WHERE run = ? GROUP BY 1, 2",
        [run],
    )
    answers = Counter[int]()
    for row in outcomes:
        answers[row["bucket"]] += row["count"]
    of_outcome = {(row["outcome"], row["bucket"]): row["count"] for row in outcomes}

    def shares(san: str, table: str) -> dict[str, list[float | None]]:
        return _shares(
            buckets,
            index.query(
                f"SELECT {bucket} AS bucket, {_PIECE.format(san=san)} AS piece, count(*) AS count "
                f"FROM {table} WHERE run = ? AND {san} IS NOT NULL GROUP BY 1, 2",
                [run],
            ),
        )

    return {
        "versions": [row["version"] for row in rows],
        "series": {name: [row[name] for row in rows] for name in names},
        "quantiles": {
            name: [
                [(quantiles.get(b, {}).get(name) or [None] * 3)[place] for b in buckets] for place in range(3)
            ]
            for name in measures
        },
        "outcomes": {
            outcome: [of_outcome.get((outcome, b), 0) / answers[b] if answers[b] else None for b in buckets]
            for outcome in sorted({row["outcome"] for row in outcomes})
        },
        "pieces": shares("san", "answers"),
        "best_pieces": shares("best", "groups"),
    }


def _shares(buckets: list[int], rows: list[Row]) -> dict[str, list[float | None]]:
    """The share of each piece in the moves of each bucket."""
    counts = {(row["bucket"], row["piece"]): row["count"] for row in rows}
    totals = {bucket: sum(counts.get((bucket, piece), 0) for piece in "PNBRQK") for bucket in buckets}
    return {
        piece: [counts.get((b, piece), 0) / totals[b] if totals[b] else None for b in buckets]
        for piece in "PNBRQK"
    }


def history(index: Index, position: str, fen: str, runs: list[str]) -> list[Row]:
    """All groups of `runs` on one position, by version, with their answers."""
    groups = index.query(
        "SELECT * FROM groups WHERE position = ? AND fen = ? AND list_contains(?, run) "
        "ORDER BY run, version, g LIMIT 200",
        [position, fen, runs],
    )
    return with_answers(index, groups, Condition("true", ()))


def compare(index: Index, first: str, second: str, *, number: int) -> dict[str, Any]:
    """Two runs on the positions that both have: the mean rewards of each, and their difference with its 95%
    interval (normal, over positions), the largest differences first. `indexing` names those of which only a
    part has been read, `empty` those without a group."""
    indexing = index.incomplete((first, second))  # asked first: if there is none, the queries see all
    tables = (
        "FROM (SELECT position, fen, avg(reward_mean) AS reward, arg_max(id, version) AS id, "
        "max(version) AS version FROM groups WHERE run = ? GROUP BY ALL) x "
        "JOIN (SELECT position, fen, avg(reward_mean) AS reward, arg_max(id, version) AS id, "
        "max(version) AS version FROM groups WHERE run = ? GROUP BY ALL) y USING (position, fen) "
    )
    (totals,) = index.query(
        "SELECT count(*) AS positions, avg(x.reward) AS first, avg(y.reward) AS second, "
        f"avg(y.reward - x.reward) AS difference, stddev_samp(y.reward - x.reward) AS deviation {tables}",
        [first, second],
    )
    rows = index.query(
        "SELECT position, fen, x.reward AS first, y.reward AS second, x.id AS first_id, y.id AS second_id, "
        f"x.version AS first_version, y.version AS second_version {tables} "
        f"ORDER BY abs(y.reward - x.reward) DESC, position LIMIT {PAGE} OFFSET ?",
        [first, second, number * PAGE],
    )
    places = {(first, row["first_id"]): row for row in rows} | {
        (second, row["second_id"]): row for row in rows
    }
    groups = index.query(
        "SELECT * FROM groups WHERE list_contains(?, run) AND list_contains(?, id)",
        [[first, second], [id for _, id in places]],
    )
    for group in with_answers(index, groups, Condition("true", ())):
        if row := places.get((group["run"], group["id"])):
            row["first_answers" if group["id"] == row["first_id"] else "second_answers"] = group["answers"]
    deviation, count = totals.pop("deviation"), totals["positions"]
    indexed_runs = {row["run"] for row in index.query("SELECT DISTINCT run FROM groups")}
    return {
        **totals,
        "indexing": indexing,
        "empty": [run for run in (first, second) if run not in indexed_runs],
        "margin": Z95 * deviation / math.sqrt(count) if deviation is not None else None,
        "page_size": PAGE,
        "rows": rows,
    }
