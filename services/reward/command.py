"""`rookery score`: judges one answer, or a file of answers, without a running service."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Self

from pydantic import Field, PositiveInt, model_validator
from pydantic_core import from_json
from pydantic_settings import CliPositionalArg
from rich.table import Table

from rookery.config.reward import RewardSettings
from rookery.errors import QUOTED_CHARS, InvalidInput, RookeryError, problem
from rookery.settings import Settings
from rookery.terminal import SafeConsole
from rookery.trace import Evaluation, Move, ScoreItem, Verdict
from services.reward import LocalScorer
from services.reward.requests import read_item

_CHUNK = 256


class ScoreSettings(Settings, env_prefix="SCORE_"):
    r"""Judge answers with Stockfish, without a running service.

    Each line of a file is the body of a POST /v1/score: {"fen": ..., "response": ...}. The output has one
    verdict per line. A line that cannot be judged has a problem in its place, and the exit status is then 1.
    With --file, the flags --scheme, --task, --move, --target and --truncated are for lines without such a
    field. Engine settings are read from REWARD_... variables.

    Examples:
      rookery score "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1" '\boxed{Ra8#}'
      rookery score FEN - < completion.txt
      rookery score FEN '\boxed{e4}' --scheme 'accuracy+0.1*format' --nodes 100000
      rookery score FEN 'M: e2e4 d2d4 g1f3 c2c4 b1c3 E: 0.3 0.3 0.2 0.2 0.1 B: e2e4' --task P
      rookery score --file answers.jsonl > verdicts.jsonl
    """

    fen: CliPositionalArg[str | None] = None
    """The position."""
    response: CliPositionalArg[str | None] = None
    """The completion, such as '\\boxed{Nf3}'; -: from stdin."""
    file: Path | None = None
    """A file with one answer per line, as JSON; -: from stdin."""
    scheme: str = ""
    """delta, best, accuracy, minmax, model, or a sum of them. Default: that of the service."""
    task: str = ""
    """move (the default), game, P or A."""
    move: str = ""
    """Task A: the move that the model was asked about, in UCI."""
    target: str = ""
    """Tasks P and A: the right answer, to judge by it alone."""
    truncated: bool = False
    """The completion was cut at its token limit."""
    nodes: PositiveInt | None = None
    """Nodes per search. Default: REWARD_NODES, or 1000."""
    json_: bool = Field(default=False, alias="json")
    """Print JSON instead of a table."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.fen is None or self.response is None):
            raise ValueError("give FEN and RESPONSE, or --file")
        return self


def score(settings: ScoreSettings) -> int:
    """Prints the verdicts and returns the exit status: 1 if a line of a file could not be judged. Raises
    `InvalidInput` if the position, the scheme or the task is wrong, or the file cannot be read; `SetupError`
    if Stockfish was not found or does not work."""
    flags = [] if settings.nodes is None else ["--nodes", str(settings.nodes)]
    engine = RewardSettings.parse(
        [*flags, *(() if settings.file else ("--engines", "1"))], prog="rookery score"
    )
    with closing(LocalScorer(engine)) as scorer:
        return _score_file(scorer, settings) if settings.file else _score_one(scorer, settings)


def _score_one(scorer: LocalScorer, options: ScoreSettings) -> int:
    response = sys.stdin.read() if options.response == "-" else options.response or ""
    verdict = scorer.score(ScoreItem(options.fen or "", response, **_fields(options)))
    if options.json_:
        sys.stdout.write(_json(verdict) + "\n")
    else:
        SafeConsole().print(verdict_table(verdict))
    return 0


def _fields(options: ScoreSettings) -> dict[str, Any]:
    """The fields of an item, besides the two, that the command line sets."""
    settable = ScoreSettings.model_fields
    return {f.name: getattr(options, f.name) for f in fields(ScoreItem) if f.kw_only and f.name in settable}


def _score_file(scorer: LocalScorer, options: ScoreSettings) -> int:
    failed = done = 0
    with _open(options.file or Path("-")) as lines:
        read = _items(lines, _fields(options))
        while items := list(islice(read, _CHUNK)):
            for result in scorer.score_batch(items):
                failed += not isinstance(result, Verdict)
                sys.stdout.write(_json(result) + "\n")
            done += len(items)
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{done} answers judged")
    sys.stderr.write(f"\r{done} answers, {failed} of them could not be judged\n")
    return 1 if failed else 0


def _open(path: Path) -> BinaryIO:
    try:
        return sys.stdin.buffer if str(path) == "-" else path.open("rb")
    except OSError as error:
        raise InvalidInput(f"cannot read {str(path)!r}: {error.strerror}") from error


def _items(lines: Iterable[bytes], defaults: dict[str, Any]) -> Iterator[ScoreItem | InvalidInput]:
    for number, line in enumerate(lines, start=1):
        try:
            try:
                raw = from_json(line)
            except ValueError as error:
                raise InvalidInput(f"not JSON: {error} (got {line[:QUOTED_CHARS]!r})") from error
            yield read_item({**defaults, **raw} if isinstance(raw, dict) else raw, place="line")
        except InvalidInput as error:
            yield InvalidInput(f"line {number}: {error}")


def _json(result: Verdict | RookeryError) -> str:
    return json.dumps(asdict(result) if isinstance(result, Verdict) else problem(result))


def verdict_table(verdict: Verdict) -> Table:
    """The table of `verdict`: one row per field, without those that are None."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    rows = {
        "reward": f"{verdict.reward:+.4f}",
        "outcome": verdict.outcome.value,
        "move": _move(verdict.move, verdict.eval_after, verdict.win_after),
        "best": _move(verdict.best, verdict.eval_before, verdict.win_before),
        "regret": None if verdict.regret is None else f"{verdict.regret:.4f}",
        "claims": _claims(verdict),
        "engine": f"{verdict.engine.id}, {verdict.engine.nodes} nodes" if verdict.engine else None,
        "version": verdict.reward_version,
    }
    for name, value in rows.items():
        if value is not None:
            table.add_row(name, value)
    return table


def _claims(verdict: Verdict) -> str | None:
    """The claims of the text before the box, if it was read."""
    claims = [claim.true for sentence in verdict.sentences for claim in sentence.claims]
    unread = sum(not sentence.read for sentence in verdict.sentences)
    if not verdict.sentences:
        return None
    sentences = f"{unread} of {len(verdict.sentences)} sentences not read"
    return f"{claims.count(True)} true, {claims.count(False)} false, {claims.count(None)} open; {sentences}"


def _move(move: Move | None, evaluation: Evaluation | None, win: float | None) -> str | None:
    if move is None or evaluation is None or win is None:
        return None
    score = f"mate {evaluation.mate}" if evaluation.cp is None else f"{evaluation.cp / 100:+.2f}"
    return f"{move.san} ({move.uci})  {score}  win {win:.1%}"
