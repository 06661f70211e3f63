"""Questions to the index: pages of groups, histograms, versions, positions, two runs beside each other."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import partial
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
BARS = 24
"""Bars of the histogram of a version."""
MOST_MEASURED = 50_000
"""About how many answers of a run the histograms of versions count: of more, those of some groups."""
_OUTSIDE = 0.002
"""The share of values at each end that the first and the last bar of all versions count."""

_MEASURES = {
    "reward": ("reward", "answers"),
    "advantage": ("advantage", "answers"),
    "length": ("length", "answers"),
    "surprise": ("surprise", "answers"),
    "entropy": ("finite(-logprob / tokens)", "groups"),
}
"""What has a histogram by version. The mean surprise of all tokens of a group estimates the entropy of the
policy on its position, without bias, because the tokens were sampled from it."""

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

_GRADE = (
    "CASE WHEN outcome != 'legal' THEN 'illegal' WHEN regret IS NULL THEN 'unrated' "
    "WHEN regret < 0.005 THEN 'best' WHEN regret < 0.1 THEN 'good' WHEN regret < 0.3 THEN 'poor' "
    "ELSE 'bad' END"
)
"""How good an answer is, as `grade` of the page has it."""
GRADES = ("best", "good", "unrated", "poor", "bad", "illegal")

_PIECE = (
    "CASE WHEN {san} IS NULL THEN NULL WHEN {san}[1] IN ('N', 'B', 'R', 'Q', 'K') THEN {san}[1] "
    "WHEN {san}[1] = 'O' THEN 'K' ELSE 'P' END"
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
        f"SELECT outcome, {_GRADE} AS grade, floor((reward - ?) / ?)::INTEGER AS n, "
        f"least({BINS - 1}, n - (reward < ? + n * ?)::INTEGER + (reward >= ? + (n + 1) * ?)::INTEGER) "
        "AS bin, "
        f"({inside.sql}) AS inside, count(*) AS count, sum(reward) AS reward, "
        "count(reward) AS rewarded, sum(regret) AS regret, count(regret) AS rated "
        f"FROM answers a WHERE {others.sql} GROUP BY ALL",
        [*[low, width] * 3, *inside.values, *others.values],
    )
    edges = [low + number * width for number in range(BINS + 1)]
    bins = [
        {"low": left, "high": right, "legal": 0, "other": 0, "grades": dict.fromkeys(GRADES, 0)}
        for left, right in pairwise(edges)
    ]
    outcomes: Counter[str] = Counter()
    for cell in cells:
        if cell["n"] is not None and (not chosen.outcome or cell["outcome"] in chosen.outcome):
            bar: dict[str, Any] = bins[cell["bin"]]
            bar["legal" if cell["outcome"] == Outcome.LEGAL else "other"] += cell["count"]
            bar["grades"][cell["grade"]] += cell["count"]
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
    """Signs of collapse over versions: shares of equal answers and rewards, surprise, moves by piece; of each
    version quantiles and histograms, of one group in `every` so many."""
    (ends,) = index.query(
        "SELECT min(version) AS low, max(version) AS high, sum(size) AS answers FROM groups WHERE run = ?",
        [run],
    )
    if ends["low"] is None:
        parts = ("series", "quantiles", "histograms", "outcomes", "pieces", "best_pieces")
        return {"versions": [], "every": 1, **{part: {} for part in parts}}
    width = math.ceil((ends["high"] - ends["low"] + 1) / BUCKETS)
    bucket = f"(version - {ends['low']}) // {width}"
    rows = index.query(
        f"SELECT {bucket} AS bucket, min(version) AS version, "
        "avg((reward_std = 0)::INTEGER) AS zero_variance, "
        "avg(distinct_texts / size) AS distinct_answers, avg(distinct_moves / size) AS distinct_moves, "
        "-sum(logprob) / sum(tokens) AS surprise FROM groups WHERE run = ? GROUP BY 1 ORDER BY 1",
        [run],
    )
    series = ("zero_variance", "distinct_answers", "distinct_moves", "surprise")
    buckets = [row["bucket"] for row in rows]
    every = max(1, math.ceil(ends["answers"] / MOST_MEASURED))
    measured = Condition(f"run = ? AND g % {every} = 0", (run,))
    shares = partial(_shares, index, run, bucket, buckets=buckets)
    return {
        "versions": [row["version"] for row in rows],
        "series": {name: [row[name] for row in rows] for name in series},
        **_distributions(index, measured, bucket, buckets=buckets),
        "every": every,
        "outcomes": shares("outcome", table="answers"),
        "pieces": shares(_PIECE.format(san="san"), table="answers", names="PNBRQK"),
        "best_pieces": shares(_PIECE.format(san="best"), table="groups", names="PNBRQK"),
    }


def _distributions(
    index: Index, measured: Condition, bucket: str, *, buckets: list[int]
) -> dict[str, dict[str, Any]]:
    """Quantiles and histograms of each measure, by bucket of versions."""
    quantiles: defaultdict[int, Row] = defaultdict(dict)
    ends: Row = {}
    for table in ("answers", "groups"):
        inside = _aggregates("quantile_cont({value}, [0.1, 0.5, 0.9])", table)
        for row in index.query(
            f"SELECT {bucket} AS bucket, {inside} FROM {table} WHERE {measured.sql} GROUP BY 1",
            measured.values,
        ):
            quantiles[row["bucket"]] |= row
        outside = _aggregates(f"quantile_disc({{value}}, [{_OUTSIDE}, {1 - _OUTSIDE}])", table)
        ends |= index.query(f"SELECT {outside} FROM {table} WHERE {measured.sql}", measured.values)[0]
    return {
        "quantiles": {
            name: [[(quantiles[b].get(name) or [None] * 3)[place] for b in buckets] for place in range(3)]
            for name in _MEASURES
        },
        "histograms": {
            name: _histograms(index, measured, name, bucket, buckets=buckets, ends=ends[name])
            for name in _MEASURES
        },
    }


def _aggregates(function: str, table: str) -> str:
    """A function of each measure that is in a table, as columns."""
    return ", ".join(
        f"{function.format(value=value)} AS {name}" for name, (value, of) in _MEASURES.items() if of == table
    )


def _histograms(
    index: Index,
    measured: Condition,
    name: str,
    bucket: str,
    *,
    buckets: list[int],
    ends: list[float] | None,
) -> dict[str, Any]:
    """How often a measure has which values, in each bucket of versions: `counts` of bars of one `width` from
    `low` on. Almost all values are between the `ends`."""
    value, table = _MEASURES[name]
    low, high = ends or (0.0, 0.0)
    if name == "length":  # a bar has as many whole numbers as any other
        low, width = low - 0.5, float(math.ceil((high - low + 1) / BARS))
    else:
        width = (high - low) / (BARS - 1) or 1.0
        low -= width / 2
    counts = [[0] * BARS for _ in buckets]
    places = {number: place for place, number in enumerate(buckets)}
    for row in index.query(
        f"SELECT {bucket} AS bucket, "
        f"greatest(0, least({BARS - 1}, floor(({value} - ?) / ?)))::INTEGER AS bar, count(*) AS count "
        f"FROM {table} WHERE {measured.sql} AND {value} IS NOT NULL GROUP BY 1, 2",
        [low, width, *measured.values],
    ):
        counts[places[row["bucket"]]][row["bar"]] = row["count"]
    return {"low": low, "width": width, "counts": counts}


def _shares(
    index: Index, run: str, bucket: str, value: str, *, buckets: list[int], table: str, names: str = ""
) -> dict[str, list[float | None]]:
    """The share of each value (of `names`, or of all) by bucket. Rows without a value do not count."""
    rows = index.query(
        f"SELECT {bucket} AS bucket, {value} AS value, count(*) AS count FROM {table} "
        "WHERE run = ? AND value IS NOT NULL GROUP BY 1, 2",
        [run],
    )
    counts = {(row["bucket"], row["value"]): row["count"] for row in rows}
    totals: Counter[int] = Counter()
    for row in rows:
        totals[row["bucket"]] += row["count"]
    return {
        name: [counts.get((b, name), 0) / totals[b] if totals[b] else None for b in buckets]
        for name in names or sorted({row["value"] for row in rows})
    }


def history(index: Index, position: str, fen: str, runs: list[str]) -> list[Row]:
    """All groups of `runs` on one position, by version, with their answers. Those of copies of a run are
    listed once."""
    groups = index.query(
        "SELECT * FROM groups WHERE position = ? AND fen = ? AND list_contains(?, run) "
        "QUALIFY row_number() OVER (PARTITION BY id ORDER BY run) = 1 ORDER BY run, version, g LIMIT 200",
        [position, fen, runs],
    )
    return with_answers(index, groups, Condition("true", ()))


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: a run, or some of its versions."""

    run: str
    low: int | None = None
    high: int | None = None

    @property
    def condition(self) -> Condition:
        """Bounds are inclusive."""
        bounds = (0 if self.low is None else self.low, 2**31 - 1 if self.high is None else self.high)
        return Condition("run = ? AND version BETWEEN ? AND ?", (self.run, *bounds))


def compare(index: Index, one: Side, two: Side, *, number: int) -> dict[str, Any]:
    """Two runs, or versions, on the positions that both have: the mean rewards of each, and their difference
    with its 95% interval (normal, over positions), the largest differences first. `indexing` names those of
    which only a part has been read, `empty` those without a group."""
    first, second = one.run, two.run
    indexing = index.incomplete((first, second))  # asked first: if there is none, the queries see all
    tables = (
        "FROM (SELECT position, fen, avg(reward_mean) AS reward, arg_max(id, version) AS id, "
        f"max(version) AS version FROM groups WHERE {one.condition.sql} GROUP BY ALL) x "
        "JOIN (SELECT position, fen, avg(reward_mean) AS reward, arg_max(id, version) AS id, "
        f"max(version) AS version FROM groups WHERE {two.condition.sql} GROUP BY ALL) y "
        "USING (position, fen) "
    )
    sides = (*one.condition.values, *two.condition.values)
    (totals,) = index.query(
        "SELECT count(*) AS positions, avg(x.reward) AS first, avg(y.reward) AS second, "
        f"avg(y.reward - x.reward) AS difference, stddev_samp(y.reward - x.reward) AS deviation {tables}",
        sides,
    )
    rows = index.query(
        "SELECT position, fen, x.reward AS first, y.reward AS second, x.id AS first_id, y.id AS second_id, "
        f"x.version AS first_version, y.version AS second_version {tables} "
        f"ORDER BY abs(y.reward - x.reward) DESC, position LIMIT {PAGE} OFFSET ?",
        [*sides, number * PAGE],
    )
    places: defaultdict[tuple[str, str], list[tuple[Row, str]]] = defaultdict(list)
    for row in rows:
        for run, place in ((first, "first"), (second, "second")):
            places[run, row[f"{place}_id"]].append((row, place))
    groups = index.query(
        "SELECT * FROM groups WHERE list_contains(?, run) AND list_contains(?, id)",
        [[first, second], [id for _, id in places]],
    )
    for group in with_answers(index, groups, Condition("true", ())):
        for row, place in places[group["run"], group["id"]]:
            row[f"{place}_answers"] = group["answers"]
    deviation, count = totals.pop("deviation"), totals["positions"]
    empty = [
        side.run
        for side in (one, two)
        if not index.query(f"SELECT 1 FROM groups WHERE {side.condition.sql} LIMIT 1", side.condition.values)
    ]
    return {
        **totals,
        "indexing": indexing,
        "empty": empty,
        "margin": Z95 * deviation / math.sqrt(count) if deviation is not None else None,
        "page_size": PAGE,
        "rows": rows,
    }
