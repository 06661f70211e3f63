"""The index: a DuckDB file with a row for each group and each answer of the archive.

What is filtered, sorted and counted is read from here; a whole group from the file it is in. DuckDB keeps the
index on disk beyond its memory limit, so a run of any length can be shown.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from rookery.advantages import (
    TurnReward,
    compared_returns,
    group_advantages,
    in_order_of_turns,
    leave_one_out,
)
from rookery.errors import NotFound, RookeryError
from services.viewer.runs import RunFolder
from services.viewer.store import Stamp, stamp_of

logger = logging.getLogger(__name__)

Row = dict[str, Any]

_ROWS = 1 << 24
"""More than the groups of any file: the number of a group is that of its file times this, plus its row."""

REFRESH_S = 2.0
"""Seconds for which a run that has been brought up to date counts as such."""
WAIT_S = 5.0
"""How long the first request for a run waits for its index. A larger run is shown in parts."""

_TABLES = """
CREATE TABLE files (file BIGINT PRIMARY KEY, run VARCHAR, path VARCHAR);
CREATE TABLE groups (
    g BIGINT, run VARCHAR, id VARCHAR, position VARCHAR, fen VARCHAR, phase VARCHAR, style VARCHAR,
    version INTEGER, created_at DOUBLE, size INTEGER, reward_mean DOUBLE, reward_std DOUBLE,
    reward_min DOUBLE, reward_max DOUBLE, regret_max DOUBLE, length_max INTEGER, surprise_max DOUBLE,
    legal DOUBLE, tokens INTEGER, logprob DOUBLE, distinct_texts INTEGER, distinct_moves INTEGER,
    win_before DOUBLE, best VARCHAR, kind VARCHAR, step INTEGER, age INTEGER
);
CREATE TABLE answers (
    g BIGINT, run VARCHAR, version INTEGER, i INTEGER, episode INTEGER, turn INTEGER, reward DOUBLE,
    advantage DOUBLE, outcome VARCHAR, result VARCHAR,
    regret DOUBLE, win_after DOUBLE, length INTEGER, surprise DOUBLE, uci VARCHAR, san VARCHAR,
    components MAP(VARCHAR, DOUBLE), text VARCHAR
);
CREATE MACRO finite(x) AS CASE WHEN isfinite(x) THEN x END;
"""
"""A figure that is NaN or infinite is not known: NULL."""

_OF_VERSION_1 = """REPLACE ([
    {'id': t.id, 'turns': [{'completion': t.completion, 'verdict': t.verdict, 'prompt': NULL,
        'policy': NULL::STRUCT(number UBIGINT), 'observation': '', 'rewards': MAP {}::MAP(VARCHAR, DOUBLE),
        'role': ''}]}
    FOR t IN traces] AS traces, struct_insert(position, episode := '') AS position)"""
"""A trace was one turn."""

_WITHOUT_ROLES = """REPLACE (
    [{'id': e.id, 'turns': [struct_insert(t, role := '') FOR t IN e.turns]} FOR e IN traces] AS traces)"""
"""The first files of version 2 do not say whose turn it was."""

_FILE = """
(SELECT *, flatten([t.turns FOR t IN traces]) AS turns,
    [[coalesce(t.verdict.reward, 0) + coalesce(list_sum(map_values(t.rewards)), 0) FOR t IN e.turns]
     FOR e IN traces] AS rewards,
    flatten([[{{'episode': e, 'turn': t}} FOR t IN range(len(traces[e + 1].turns))]
             FOR e IN range(len(traces))]) AS places,
    [regexp_extract(e.turns[-1].observation, ': (1-0|0-1|1/2-1/2), ', 1) FOR e IN traces] AS results
 FROM (SELECT * {replace} FROM read_parquet($path, file_row_number = true, hive_partitioning = false)))
"""

_ADD_GROUPS = """
INSERT INTO groups
SELECT $base + file_row_number, $run, id, position.id, prompt.fen, position.phase, prompt.style,
    policy.number, created_at, len(turns), list_avg(returns),
    CASE WHEN list_min(returns) < list_max(returns) THEN list_stddev_pop(returns) ELSE 0 END,
    list_min(returns), list_max(returns),
    list_max([finite(t.verdict.regret) FOR t IN turns]),
    list_max([len(t.completion.token_ids) FOR t IN turns]),
    list_max([finite(-list_avg(t.completion.logprobs)) FOR t IN turns]),
    list_avg([(t.verdict.outcome = 'legal')::INTEGER FOR t IN turns]),
    list_sum([len(t.completion.token_ids) FOR t IN turns]),
    finite(list_sum([list_sum(t.completion.logprobs) FOR t IN turns])),
    list_unique([t.completion.text FOR t IN turns]),
    list_unique([t.verdict.move.uci FOR t IN turns]),
    list_max([finite(t.verdict.win_before) FOR t IN turns]),
    list_max([t.verdict.best.san FOR t IN turns]),
    coalesce(nullif(trim(split_part(position.episode, ',', 1)), ''), 'move'), NULL, NULL
FROM (SELECT *, [list_sum(e) FOR e IN rewards IF isfinite(list_sum(e))] AS returns FROM {file})
"""

_ADD_ANSWERS = """
INSERT INTO answers
SELECT $base + place, $run, coalesce(t.policy.number, version), i, place_of.episode, place_of.turn,
    finite(reward), $advantages[place + 1][i + 1], coalesce(t.verdict.outcome, 'call'),
    CASE results[place_of.episode + 1] WHEN '' THEN NULL WHEN '1/2-1/2' THEN 'drawn'
        WHEN CASE coalesce(nullif(t.role, ''), mover) WHEN 'white' THEN '1-0' ELSE '0-1' END THEN 'won'
        ELSE 'lost' END,
    finite(t.verdict.regret), finite(t.verdict.win_after), len(t.completion.token_ids),
    finite(-list_avg(t.completion.logprobs)), t.verdict.move.uci, t.verdict.move.san,
    map_concat(t.verdict.components, t.rewards), t.completion.text
FROM (SELECT file_row_number AS place, policy.number AS version, results,
             CASE WHEN contains(position.fen, ' w ') THEN 'white' ELSE 'black' END AS mover,
             unnest(turns) AS t,
             unnest(flatten(rewards)) AS reward, unnest(places) AS place_of,
             generate_subscripts(turns, 1) - 1 AS i
      FROM {file})
"""

_TURN_REWARDS = """
SELECT [[{{'verdict': finite(coalesce(t.verdict.reward, 0)),
           'paid': finite(coalesce(list_sum(map_values(t.rewards)), 0)), 'role': t.role}} FOR t IN e.turns]
        FOR e IN traces]
FROM {file} ORDER BY file_row_number
"""


@dataclass(slots=True)
class _RunIndex:
    """The index of one run. `total` counts its files, without those that cannot be read."""

    files: dict[Path, Stamp] = field(default_factory=dict)
    total: int = 0
    unreadable: set[Path] = field(default_factory=set)
    failure: str = ""
    settings: Mapping[str, Any] | None = None
    """Those of the trainer, by which advantages were computed."""
    commit: tuple[Stamp | None, int] | None = None
    """The newest commit and the number of files when the steps of the groups were last set."""
    complete: bool = False
    """Whether all files have been read once, or their reading has failed."""
    opened: float = 0.0
    job: Future[None] | None = None


class Index:
    """All runs that have been opened. Thread-safe: each query has a cursor of its own."""

    def __init__(self, path: Path, *, memory_mb: int = 512) -> None:
        self._database = duckdb.connect(str(path), config={"memory_limit": f"{memory_mb}MiB"})
        self._database.execute(_TABLES)
        self._writing, self._opening = threading.Lock(), threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="index")
        self._stopping = False
        self._runs: defaultdict[str, _RunIndex] = defaultdict(_RunIndex)

    def close(self) -> None:
        self._stopping = True
        self._worker.shutdown(cancel_futures=True)
        with self._writing:
            self._database.close()

    def query(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        """The rows of a query, each by the names of its columns."""
        with self._database.cursor() as cursor:
            cursor.execute(sql, parameters)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def progress(self, run: str) -> tuple[int, int]:
        """How many files of a run are indexed, and how many there are."""
        return len(self._runs[run].files), self._runs[run].total

    def incomplete(self, runs: Iterable[str]) -> list[str]:
        """Those of the runs whose files are still being read: what is known of them is a part."""
        return [run for run in runs if not self._runs[run].complete]

    def opened(self) -> list[str]:
        """The names of the runs that have been opened."""
        return sorted(name for name, run in list(self._runs.items()) if run.job)

    def problem(self, run: str) -> str:
        """What is wrong with the files of a run; empty if nothing is."""
        unreadable = len(self._runs[run].unreadable)
        count = f"{unreadable} unreadable file{'s' * (unreadable > 1)} left out" if unreadable else ""
        return "; ".join(filter(None, (count, self._runs[run].failure)))

    def open(self, run: RunFolder) -> None:
        """Brings a run up to date in the background. The first time, waits a moment for it."""
        run_index = self._runs[run.name]
        with self._opening:
            earlier_job = run_index.job
            if earlier_job and not (earlier_job.done() and time.monotonic() - run_index.opened > REFRESH_S):
                return
            run_index.opened, run_index.job = time.monotonic(), self._worker.submit(self.refresh, run)
        if earlier_job is None:
            with suppress(TimeoutError):
                run_index.job.result(WAIT_S)

    def refresh(self, run: RunFolder) -> None:
        """Adds the files that are new, and notes which groups have been trained on since. The boundary of the
        indexing: a failure is logged, and `problem` says it."""
        run_index = self._runs[run.name]
        with self._writing:
            try:
                self._refresh(run, run_index)
                run_index.failure = ""
            except RookeryError as error:  # of a store
                logger.error("run %s cannot be indexed: %s", run.name, error)
                run_index.failure = f"not up to date: {error}"[:500]
            except Exception as error:
                logger.exception("run %s cannot be indexed", run.name)
                run_index.failure = f"not up to date: {type(error).__name__}: {error}"[:500]
            run_index.complete = True

    def _refresh(self, run: RunFolder, run_index: _RunIndex) -> None:
        stamps = run.update()
        replaced = any(stamps.get(path) != stamp for path, stamp in run_index.files.items())  # made anew
        old_settings, run_index.settings = run_index.settings, run.trainer_settings()
        if replaced or (old_settings is None and run_index.settings is not None):
            self._forget(run.name)
        run_index.unreadable.intersection_update(stamps)
        run_index.total = len(stamps) - len(run_index.unreadable)
        for path, stamp in stamps.items():
            if self._stopping:
                return
            if path not in run_index.files:
                run.fetch(path)
                if self._add(run.name, path, run_index.settings, quiet=path in run_index.unreadable):
                    run_index.files[path] = stamp
                    run_index.unreadable.discard(path)
                else:
                    run_index.unreadable.add(path)
                run_index.total = len(stamps) - len(run_index.unreadable)
        self._note_trained(run, run_index)

    def _forget(self, run: str) -> None:
        with self._database.cursor() as cursor:
            cursor.execute("DELETE FROM answers WHERE run = ?", [run])
            cursor.execute("DELETE FROM groups WHERE run = ?", [run])
            cursor.execute("DELETE FROM files WHERE run = ?", [run])
        self._runs[run].files.clear()
        self._runs[run].commit = None
        self._runs[run].complete = False

    def _add(self, run: str, path: Path, settings: Mapping[str, Any] | None, *, quiet: bool) -> bool:
        """Adds a file, whole or not at all. Says whether it could be read, and logs it unless `quiet`."""
        with self._database.cursor() as cursor:
            (number,) = cursor.execute("SELECT coalesce(max(file) + 1, 0) FROM files").fetchone() or (0,)
            values = {"base": number * _ROWS, "path": str(path), "run": run}
            try:
                cursor.begin()
                cursor.execute("INSERT INTO files VALUES (?, ?, ?)", [number, run, str(path)])
                file = _file(cursor, path)
                cursor.execute(_ADD_GROUPS.format(file=file), values)
                rows = cursor.execute(_TURN_REWARDS.format(file=file), {"path": str(path)}).fetchall()
                advantages = [_advantages(episodes, settings) for (episodes,) in rows]
                cursor.execute(_ADD_ANSWERS.format(file=file), {**values, "advantages": advantages})
                cursor.commit()
            except duckdb.Error as error:
                cursor.rollback()
                if not quiet:
                    logger.error("%s is not a file of groups: %s", path, error)
                return False
        return True

    def _note_trained(self, run: RunFolder, run_index: _RunIndex) -> None:
        """Sets the step of every group again: a run may have gone back to an earlier version."""
        commit = run.newest_commit()
        newest = (stamp_of(commit) if commit else None, len(run_index.files))
        if run_index.commit == newest:
            return
        trained = run.trained()
        with self._database.cursor() as cursor:
            cursor.execute(
                "UPDATE groups SET step = t.step, age = t.step - 1 - groups.version "
                "FROM (SELECT g, u.step FROM groups LEFT JOIN "
                "(SELECT unnest($ids) AS id, unnest($steps) AS step) u USING (id) WHERE run = $run) t "
                "WHERE groups.g = t.g AND groups.step IS DISTINCT FROM t.step",
                {"ids": list(trained), "steps": list(trained.values()), "run": run.name},
            )
        run_index.commit = newest

    def whole(self, run: str, group: str) -> Row:
        """A group as it is in the archive, with `number` (its place here), `step` and `age`. Raises
        `NotFound` if the run has no such group, or its file is gone."""
        rows = self.query(
            "SELECT g, step, age, path FROM groups JOIN files ON file = g // ? "
            "WHERE groups.run = ? AND id = ?",
            [_ROWS, run, group],
        )
        if not rows:
            raise NotFound(f"no group {group[:80]!r} in the archive of run {run!r}")
        place = rows[0]
        try:
            with self._database.cursor() as cursor:
                file = _file(cursor, place["path"])
            (row,) = self.query(
                f"SELECT * FROM {file} WHERE file_row_number = $row",  # noqa: S608 - of constants
                {"path": place["path"], "row": place["g"] % _ROWS},
            )
        except duckdb.IOException as error:
            raise NotFound(f"the file of group {group!r} cannot be read: {error}") from error
        return row | {"number": place["g"], "step": place["step"], "age": place["age"]}


def _file(cursor: duckdb.DuckDBPyConnection, path: Path | str) -> str:
    """The rows of a file of either version, as a query with the parameter `path`."""
    query = "SELECT value FROM parquet_kv_metadata(?) WHERE key = 'rookery.schema'"
    if cursor.execute(query, [str(path)]).fetchone() == (b"1",):
        return _FILE.format(replace=_OF_VERSION_1)
    cursor.execute("SELECT flatten([e.turns FOR e IN traces]) FROM read_parquet(?) LIMIT 0", [str(path)])
    turns = cursor.description[0][1]
    return _FILE.format(replace="" if "role" in dict(turns.child.children) else _WITHOUT_ROLES)


def _advantages(episodes: Sequence[Sequence[Row]], settings: Mapping[str, Any] | None) -> list[float | None]:
    """The trainer's advantages of the turns, from what they are paid by episode. Moving averages are not in
    the archive: for `ema` and `adaptive` they are relative to the group. None if the settings or a reward are
    unknown, and for `none`, which has the critic's."""
    turns = [turn for episode in episodes for turn in episode]
    unknown = any(turn["verdict"] is None or turn["paid"] is None for turn in turns)
    if settings is None or settings.get("baseline") == "none" or unknown or not turns:
        return [None] * len(turns)
    relative = leave_one_out if settings.get("baseline") == "leave-one-out" else group_advantages
    floor = float(settings.get("sigma_floor", 0.0))
    normalise = bool(settings.get("normalise", True))
    compared = compared_returns(
        [[TurnReward(**turn) for turn in episode] for episode in episodes],
        mean=settings.get("turn_rewards") == "mean",
    )
    values = [relative(peers.returns, normalise=normalise, sigma_floor=floor) for peers in compared]
    return list(in_order_of_turns(compared, values))
