"""Scores the answers of a view under another scheme, from the win probabilities in the archive.

Schemes that need scores, further searches, a reward model or the reading of the text are left to
`rookery rescore`, which asks the engine.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rookery.errors import InvalidInput
from rookery.schemes import Evidence, Scheme, find_scheme
from rookery.trace import Outcome
from services.viewer.filters import Filter
from services.viewer.index import Index, Row

GROUPS = 2000
"""The most groups that are scored again, the newest of the view."""
SHOWN = 40
"""Groups with the most changes that are listed."""

_NOISE = 1e-9
"""Advantages smaller than this are rounding errors and count as zero."""


@dataclass
class _Archived(Evidence):
    """What the archive has of an answer with a legal move."""

    win_best: float
    win_played: float
    response: str


def rescore(index: Index, run: str, chosen: Filter, scheme_text: str) -> dict[str, Any]:
    """How advantages change their signs. An advantage is relative to the mean of the group, as in GRPO.
    Raises `InvalidInput` if there is no such scheme, or it needs more than the archive has."""
    scheme = find_scheme(scheme_text)
    if not scheme.uses <= {"regret", "response"}:
        raise InvalidInput(
            f"scheme {scheme_text!r} needs more than the archive's win probabilities: use `rookery rescore`"
        )
    where = chosen.groups(run)
    rows = index.query(
        "SELECT g.g, id, fen, g.version, win_before, i, episode, reward, outcome, win_after, san, text "
        f"FROM (SELECT * FROM groups g WHERE {where.sql} ORDER BY g DESC LIMIT {GROUPS}) g "
        "JOIN answers a USING (g) WHERE outcome != 'call' ORDER BY a.g DESC, a.i",
        where.values,
    )
    group_rows = [list(members) for _, members in groupby(rows, key=lambda row: row["g"])]
    groups = [_group(scheme, members) for members in group_rows if _has_figures(members)]
    answers = [answer for group in groups for answer in group["answers"]]
    signs = Counter(answer["change"] for answer in answers)
    changed = sorted(groups, key=lambda group: -sum(a["change"] != "kept" for a in group["answers"]))
    return {
        "scheme": scheme.text,
        "groups": len(groups),
        "left_out": len(group_rows) - len(groups),
        "answers": len(answers),
        "signs": {name: signs[name] for name in ("kept", "flipped", "silenced", "awakened")},
        "rows": [g for g in changed[:SHOWN] if any(a["change"] != "kept" for a in g["answers"])],
    }


def _has_figures(rows: list[Row]) -> bool:
    """Whether the archive has the rewards, and the win probabilities that a scheme needs. It has those of one
    position for a group, so that a game of several moves is left out."""
    legal = (row for row in rows if row["outcome"] == Outcome.LEGAL)
    wins = [row[win] for row in legal for win in ("win_before", "win_after")]
    return None not in (*wins, *(row["reward"] for row in rows)) and len(rows) == len(
        {row["episode"] for row in rows}
    )


def _group(scheme: Scheme, rows: list[Row]) -> Row:
    before = [row["reward"] for row in rows]
    after = [_reward(scheme, row) for row in rows]
    answers = [
        {
            "i": row["i"],
            "san": row["san"],
            "outcome": row["outcome"],
            "reward": row["reward"],
            "rescored": reward,
            "change": _change(old, new),
        }
        for row, reward, old, new in zip(rows, after, _centred(before), _centred(after), strict=True)
    ]
    return {key: rows[0][key] for key in ("id", "fen", "version")} | {"answers": answers}


def _reward(scheme: Scheme, row: Row) -> float:
    """As the reward service computes it."""
    outcome = Outcome(row["outcome"])
    if outcome is not Outcome.LEGAL:
        return scheme.penalty(outcome)
    answer = _Archived(row["win_before"], row["win_after"], row["text"])
    return sum(scheme.components(answer).values())


def _centred(rewards: list[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    return [0.0 if abs(reward - mean) < _NOISE else reward - mean for reward in rewards]


def _change(before: float, after: float) -> str:
    if before * after < 0:
        return "flipped"
    if bool(before) == bool(after):
        return "kept"
    return "silenced" if before else "awakened"
