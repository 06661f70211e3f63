"""The index: a DuckDB file with a row for each group and each answer of the archive.

What is filtered, sorted and counted is read from here; a whole group from the file it is in. DuckDB keeps the
index on disk beyond its memory limit, so a run of any length can be shown.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from rookery.errors import NotFound
from services.viewer.runs import RunFolder

logger = logging.getLogger(__name__)

Row = dict[str, Any]
_Stamp = tuple[int, int]
"""Size and time of change of a file."""

_ROWS = 1 << 24
"""More than the groups of any file: the number of a group is that of its file times this, plus its row."""

REFRESH_S = 2.0
"""Seconds for which a run that has been brought up to date counts as such."""
WAIT_S = 5.0
"""How long the first request for a run waits for its index. A larger run is shown in parts."""

_EPSILON = 1e-4
"""Added to the standard deviation, as by the trainer."""

_TABLES = """
CREATE TABLE files (file BIGINT PRIMARY KEY, run VARCHAR, path VARCHAR);
CREATE TABLE groups (
    g BIGINT, run VARCHAR, id VARCHAR, position VARCHAR, fen VARCHAR, phase VARCHAR, style VARCHAR,
    version INTEGER, created_at DOUBLE, size INTEGER, reward_mean DOUBLE, reward_std DOUBLE,
    reward_min DOUBLE, reward_max DOUBLE, regret_max DOUBLE, length_max INTEGER, surprise_max DOUBLE,
    tokens INTEGER, logprob DOUBLE, distinct_texts INTEGER, distinct_moves INTEGER, win_before DOUBLE,
    best VARCHAR, step INTEGER, age INTEGER
);
CREATE TABLE answers (
    g BIGINT, run VARCHAR, version INTEGER, i INTEGER, reward DOUBLE, advantage DOUBLE, outcome VARCHAR,
    regret DOUBLE, win_after DOUBLE, length INTEGER, surprise DOUBLE, uci VARCHAR, san VARCHAR,
    components MAP(VARCHAR, DOUBLE), text VARCHAR
);
"""

_ADD_GROUPS = """
INSERT INTO groups
SELECT $base + file_row_number, $run, id, position.id, prompt.fen, position.phase, prompt.style,
    policy.number, created_at, len(traces), list_avg(rewards),
    CASE WHEN list_min(rewards) = list_max(rewards) THEN 0 ELSE list_stddev_pop(rewards) END,
    list_min(rewards), list_max(rewards),
    list_max(list_transform(traces, lambda t: t.verdict.regret)),
    list_max(list_transform(traces, lambda t: len(t.completion.token_ids))),
    list_max(list_transform(traces, lambda t: -list_avg(t.completion.logprobs))),
    list_sum(list_transform(traces, lambda t: len(t.completion.token_ids))),
    list_sum(list_transform(traces, lambda t: list_sum(t.completion.logprobs))),
    list_unique(list_transform(traces, lambda t: t.completion.text)),
    list_unique(list_transform(traces, lambda t: t.verdict.move.uci)),
    list_max(list_transform(traces, lambda t: t.verdict.win_before)),
    list_max(list_transform(traces, lambda t: t.verdict.best.san)), NULL, NULL
FROM (SELECT *, list_transform(traces, lambda t: t.verdict.reward) AS rewards
      FROM read_parquet($path, file_row_number = true, hive_partitioning = false))
"""

_ADD_ANSWERS = """
INSERT INTO answers
SELECT g, $run, version, i, t.verdict.reward,
    CASE WHEN $per_token THEN NULL WHEN low = high THEN 0
         ELSE $factor(size) * (t.verdict.reward - mean) / $divisor END,
    t.verdict.outcome, t.verdict.regret, t.verdict.win_after, len(t.completion.token_ids),
    -list_avg(t.completion.logprobs), t.verdict.move.uci, t.verdict.move.san, t.verdict.components,
    t.completion.text
FROM (SELECT $base + file_row_number AS g, policy.number AS version,
             unnest(traces) AS t, generate_subscripts(traces, 1) - 1 AS i,
             len(traces) AS size, list_min(rewards) AS low, list_max(rewards) AS high,
             list_avg(rewards) AS mean, list_stddev_pop(rewards) AS deviation
      FROM (SELECT *, list_transform(traces, lambda t: t.verdict.reward) AS rewards
            FROM read_parquet($path, file_row_number = true, hive_partitioning = false)))
"""


class Index:
    """All runs that have been opened. Thread-safe: each query has a cursor of its own."""

    def __init__(self, path: Path, *, memory_mb: int = 512) -> None:
        self._database = duckdb.connect(str(path), config={"memory_limit": f"{memory_mb}MiB"})
        self._database.execute(_TABLES)
        self._writing, self._opening = threading.Lock(), threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="index")
        self._jobs: dict[str, tuple[float, Future[None]]] = {}
        self._stopping = False
        self._files: dict[str, dict[Path, _Stamp]] = {}
        self._unreadable: dict[str, set[Path]] = {}
        self._failures: dict[str, str] = {}
        self._commits: dict[str, tuple[dict[Path, _Stamp], int]] = {}
        self._states: dict[str, tuple[int, int]] = {}

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
        return self._states.get(run, (0, 0))

    def opened(self) -> list[str]:
        """The names of the runs that have been opened."""
        return sorted(self._jobs)

    def problem(self, run: str) -> str:
        """What is wrong with the files of a run; empty if nothing is."""
        unreadable = len(self._unreadable.get(run, ()))
        count = f"{unreadable} unreadable file{'s' * (unreadable > 1)} left out" if unreadable else ""
        return "; ".join(filter(None, (count, self._failures.get(run, ""))))

    def open(self, run: RunFolder) -> None:
        """Brings a run up to date in the background. The first time, waits a moment for it."""
        with self._opening:
            since, job = self._jobs.get(run.name, (0.0, None))
            if job is not None and not (job.done() and time.monotonic() - since > REFRESH_S):
                return
            fresh = self._worker.submit(self.refresh, run)
            self._jobs[run.name] = time.monotonic(), fresh
        if job is None:
            with suppress(TimeoutError):
                fresh.result(WAIT_S)

    def refresh(self, run: RunFolder) -> None:
        """Adds the files that are new, and notes which groups have been trained on since.

        The boundary of the indexing: a failure is logged, and `problem` says it.
        """
        with self._writing:
            try:
                self._refresh(run)
                self._failures.pop(run.name, None)
            except Exception as error:
                logger.exception("run %s cannot be indexed", run.name)
                self._failures[run.name] = f"not up to date: {type(error).__name__}: {error}"[:500]

    def _refresh(self, run: RunFolder) -> None:
        known = self._files.setdefault(run.name, {})
        unreadable = self._unreadable.setdefault(run.name, set())
        found = _stamps(run.archive_files())
        if any(found.get(path) != stamp for path, stamp in known.items()):  # a file has gone: made anew
            self._forget(run.name)
        settings = run.trainer_settings()
        unreadable.intersection_update(found)
        for path, stamp in found.items():
            if self._stopping:
                return
            if path not in known:
                self._states[run.name] = (len(known), len(found) - len(unreadable))
                if self._add(run.name, path, settings, quiet=path in unreadable):
                    known[path] = stamp
                    unreadable.discard(path)
                else:
                    unreadable.add(path)
        self._states[run.name] = (len(known), len(found) - len(unreadable))
        self._note_trained(run, len(known))

    def _forget(self, run: str) -> None:
        """Drops the rows of a run."""
        with self._database.cursor() as cursor:
            cursor.execute("DELETE FROM answers WHERE run = ?", [run])
            cursor.execute("DELETE FROM groups WHERE run = ?", [run])
            cursor.execute("DELETE FROM files WHERE run = ?", [run])
        self._files[run].clear()
        self._commits.pop(run, None)

    def _add(self, run: str, path: Path, settings: Mapping[str, Any], *, quiet: bool) -> bool:
        """Adds a file, whole or not at all. Says whether it could be read, and logs it unless `quiet`."""
        with self._database.cursor() as cursor:
            (number,) = cursor.execute("SELECT coalesce(max(file) + 1, 0) FROM files").fetchone() or (0,)
            values = {"base": number * _ROWS, "path": str(path), "run": run}
            try:
                cursor.begin()
                cursor.execute("INSERT INTO files VALUES (?, ?, ?)", [number, run, str(path)])
                cursor.execute(_ADD_GROUPS, values)
                cursor.execute(_advantages(_ADD_ANSWERS, settings), values)
                cursor.commit()
            except duckdb.Error as error:
                cursor.rollback()
                if not quiet:
                    logger.error("%s is not a file of groups: %s", path, error)
                return False
        return True

    def _note_trained(self, run: RunFolder, files: int) -> None:
        """Sets the step of every group again: a run may have gone back to an earlier version."""
        commit = run.newest_commit()
        newest = (_stamps([commit] if commit else []), files)
        if self._commits.get(run.name) == newest:
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
        self._commits[run.name] = newest

    def whole(self, run: str, group: str) -> Row:
        """A group as it is in the archive, with `number` (its place here), `step` and `age`.

        Raises:
            NotFound: the run has no such group, or its file is gone.
        """
        found = self.query(
            "SELECT g, step, age, path FROM groups JOIN files ON file = g // ? "
            "WHERE groups.run = ? AND id = ?",
            [_ROWS, run, group],
        )
        if not found:
            raise NotFound(f"no group {group[:80]!r} in the archive of run {run!r}")
        place = found[0]
        try:
            (row,) = self.query(
                "SELECT * FROM read_parquet(?, file_row_number = true, hive_partitioning = false) "
                "WHERE file_row_number = ?",
                [place["path"], place["g"] % _ROWS],
            )
        except duckdb.IOException as error:
            raise NotFound(f"the file of group {group!r} cannot be read: {error}") from error
        return row | {"number": place["g"], "step": place["step"], "age": place["age"]}


def _stamps(paths: Sequence[Path]) -> dict[Path, _Stamp]:
    """The files that are there, each with its stamp."""
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            stat = path.stat()
            found[path] = (stat.st_size, stat.st_mtime_ns)
    return found


def _advantages(sql: str, settings: Mapping[str, Any]) -> str:
    """The query with the trainer's formula. Moving averages are not in the archive: for `ema` and `adaptive`
    the advantage is relative to the group. `none` leaves it to the critic, for each token: NULL."""
    baseline = settings.get("baseline", "group-mean")
    factor = "(size / greatest(1, size - 1))" if baseline == "leave-one-out" else "1"
    floor = float(settings.get("sigma_floor", 0.0))
    divisor = f"(greatest(deviation, {floor}) + {_EPSILON})" if settings.get("normalise", True) else "1"
    per_token = "true" if baseline == "none" else "false"
    return sql.replace("$factor(size)", factor).replace("$divisor", divisor).replace("$per_token", per_token)
