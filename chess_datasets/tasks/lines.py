"""Reads RookWorld's `P:` and `A:` lines as positions that carry the line's own answer, the target.

A line is a row of one of these files, compressed or not:

    NAME.txt       the lines as they are; those without `P:` or `A:` are `A:` lines, as in arbiter_2m
    NAME.jsonl     objects with `text`, or with `prompt` and `completion` (or `answer`, or `target`)
    NAME.parquet   the same columns; `tasks.parquet` of `rookery data tasks` too

Only the text of the lines is held in memory. A line is parsed when it is drawn.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import chess
import pyarrow as pa

from chess_datasets.pgn.games import phase_of
from chess_datasets.store.folders import open_file
from chess_datasets.store.jsonl import read_jsonl, text_lines
from chess_datasets.store.parquet import read_rows
from rookery.errors import InvalidInput, SetupError
from rookery.fen import read_fen
from rookery.prompt import POLICY_TASK, STATE_TASK
from rookery.rookworld import parse_policy_line, parse_state_line, policy_answer, state_answer
from rookery.trace import Position

logger = logging.getLogger(__name__)

ANSWERS = ("completion", "answer", "target")
"""Names of the column with the answer, if there is one with the prompt."""

MAX_FAULTY = 100
"""The most faulty lines in a row that are passed over."""

MAX_QUOTED = 200


class Lines:
    """The lines of a file, as positions. `position` is thread-safe. Raises `SetupError` if the file cannot be
    read, is not such a file, or has no line."""

    def __init__(self, place: str) -> None:
        self.place = place
        try:
            # Arrow has the text of all lines in one block: strings would take three times the memory.
            self._texts: pa.Array = pa.array(_texts(place), pa.large_string())
        except InvalidInput as error:
            raise SetupError(str(error)) from error
        if not len(self._texts):
            raise SetupError(f"{place!r} has no line")
        folder, name = open_file(place)
        self._id = folder.sha256(name)[:8]

    def __len__(self) -> int:
        return len(self._texts)

    def position(self, row: int) -> Position:
        """The position of a line, counted from 0; of the next sound one if that line is faulty.

        Messages count from 1. Empty lines are not counted. Raises `SetupError` if more than `MAX_FAULTY`
        lines in a row are faulty; the message quotes the last.
        """
        for step in range(MAX_FAULTY + 1):
            at = (row + step) % len(self)
            try:
                return self._read(at)
            except (InvalidInput, ValueError) as error:
                fault = f"{self.place!r}, line {at + 1}: {error}"
            logger.warning("passed over: %s", fault)
        raise SetupError(f"more than {MAX_FAULTY} faulty lines in a row: {fault}")

    def warn_of_labels(self, most: int = 1000) -> None:
        """Warns if `P:` lines name a best move other than the one with the highest evaluation. The published
        lines do, whenever Black is to move: see `chess_datasets.tasks.rookworld`."""
        count = wrong = 0
        for text in self._texts[:most].to_pylist():
            with suppress(InvalidInput):
                answer = parse_policy_line(text).answer
                evals = dict(zip(answer.moves, answer.evals, strict=True))
                count += 1
                wrong += max(answer.evals) > evals.get(answer.best, -1e9)
        if wrong:
            logger.warning(
                "%r: the best move of %d of the first %d P: lines is not the one with the highest "
                "evaluation; --no-targets judges answers by the engine instead",
                self.place,
                wrong,
                count,
            )

    def _read(self, row: int) -> Position:
        text = self._texts[row].as_py()
        if text.lstrip().startswith("P:"):
            policy = parse_policy_line(text)
            best = policy.answer.best
            if not read_fen(policy.fen).is_legal(chess.Move.from_uci(best)):
                raise InvalidInput(f"the best move {best!r} is not legal in {policy.fen!r}")
            return self._position(
                row, policy.fen, (), task=POLICY_TASK, target=policy_answer(policy.answer, layout="compact")
            )
        state = parse_state_line(text)
        # The history of the question ends with its move, which the prompt style appends.
        before = state.recent[:-1] if state.recent[-1:] == (state.move,) else state.recent
        target = state_answer(state.answer)
        return self._position(row, state.fen, before, task=STATE_TASK, move=state.move, target=target)

    def _position(
        self, row: int, fen: str, last_moves: Sequence[str], *, task: str, target: str, move: str = ""
    ) -> Position:
        board = read_fen(fen)
        if not any(board.legal_moves):
            raise InvalidInput(f"no legal move in {fen!r}")
        return Position(
            id=f"{self._id}:{row}",
            fen=board.fen(),
            ply=board.ply(),
            phase=phase_of(board),
            game_id="",
            last_moves=tuple(last_moves),
            task=task,
            move=move,
            target=target,
        )


def _texts(place: str) -> Iterator[str]:
    folder, name = open_file(place)
    if name.endswith(".parquet"):
        rows: Iterable[Any] = read_rows(folder, name, ("text", "prompt", *ANSWERS))
    elif ".jsonl" in name:
        rows = read_jsonl(folder, name)
    else:
        yield from (line.decode(errors="replace") for line in text_lines(folder, name) if line.strip())
        return
    for number, row in enumerate(rows, start=1):
        yield _line(row, f"{place!r}, row {number}")


def _line(row: Any, place: str) -> str:
    """The line of a row: its `text`, or its prompt, a text or a conversation, with its answer."""
    if isinstance(row, Mapping):
        if isinstance(text := row.get("text"), str):
            return text
        prompt = row.get("prompt")
        answer = next((row[name] for name in ANSWERS if isinstance(row.get(name), str)), None)
        if isinstance(prompt, list) and prompt and isinstance(prompt[-1], Mapping):
            prompt = prompt[-1].get("content")
        if isinstance(prompt, str) and answer is not None:
            # Some data sets have the `+` between question and answer in the answer, some in neither.
            state = not prompt.lstrip().startswith("P:") and not prompt.endswith("+")
            return f"{prompt}+{answer.removeprefix('+')}" if state else prompt + answer
    raise InvalidInput(
        f"{place}: neither `text` nor `prompt` with one of {', '.join(ANSWERS)}: {str(row)[:MAX_QUOTED]}"
    )
