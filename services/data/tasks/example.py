"""Questions with their answers: one record type for all tasks of data sets.

* `P`, `A`: RookWorld's lines, cut where the model goes on (`services.data.tasks.rookworld` makes them).
* `legal-moves`: a position; every legal move.
* `next-fen`: a position and a legal move; the position after it.
* `engine-moves`: a position; candidate moves and the best of them (`services.data.tasks.engine_moves`).
* `puzzle`: a position from the Lichess puzzles; the one good move (`services.data.tasks.puzzles`).

What a prompt says is `rookery.prompt`'s business, and what is true `rookery.rookworld_env`'s.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import chess

from rookery import rookworld, rookworld_env
from rookery.prompt import ask
from rookery.rookworld import PolicyLine, StateLine
from rookery.trace import Message, Position, Prompt
from services.data.store.parquet import Kind

POLICY, STATE, LEGAL_MOVES, NEXT_FEN, PUZZLE = "P", "A", "legal-moves", "next-fen", "puzzle"
ENGINE_MOVES = "engine-moves"
TASKS = (POLICY, STATE, LEGAL_MOVES, NEXT_FEN, ENGINE_MOVES, PUZZLE)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Weighted alternatives for the characters `start` to `end` of an answer."""

    start: int
    end: int
    texts: tuple[str, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """A question as the model reads it, and the right answer.

    `fen` is the board that the question is about, `move` the move where it is about one. `alternatives` are
    soft targets for `rookery sft`.
    """

    id: str
    task: str
    fen: str
    prompt: tuple[Message, ...]
    answer: str
    move: str = ""
    alternatives: tuple[Alternatives, ...] = ()

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation, in the form that chat templates and trainers read."""
        turns = (*self.prompt, Message("assistant", self.answer))
        return [{"role": turn.role, "content": turn.content} for turn in turns]

    @property
    def text(self) -> str:
        """Prompt and answer: one line for `P` and `A`; else each message on lines of its own."""
        end = "" if self.task in (POLICY, STATE) else "\n"
        return "".join(f"{turn['content']}{end}" for turn in self.messages)


EXAMPLES = Kind("examples", Example)


def policy_example(position: Position, line: PolicyLine, *, layout: str = "published") -> Example:
    """The question and answer of a `P:` line."""
    prompt = rookworld.policy_prompt(line.fen, layout=layout)
    answer = rookworld.policy_answer(line.answer, layout=layout)
    return Example(position.id, POLICY, line.fen, (Message("user", prompt),), answer)


def state_example(position: Position, line: StateLine) -> Example:
    """The question and answer of an `A:` line."""
    prompt = rookworld.state_prompt(line.fen, line.move, line.recent)
    answer = rookworld.state_answer(line.answer)
    return Example(position.id, STATE, line.fen, (Message("user", prompt),), answer, line.move)


def rookworld_example(
    position: Position, line: PolicyLine | StateLine, *, layout: str = "published"
) -> Example:
    """The question and answer of a `P:` or `A:` line."""
    if isinstance(line, PolicyLine):
        return policy_example(position, line, layout=layout)
    return state_example(position, line)


def legal_moves(positions: Iterable[Position], *, form: str = "fen") -> Iterator[Example]:
    """Every legal move in UCI, sorted, of each position in a format of `rookery.formats`."""
    for position in positions:
        answer = " ".join(sorted(move.uci() for move in chess.Board(position.fen).legal_moves))
        yield _example(position, ask(position, task=LEGAL_MOVES, form=form), answer)


def next_fen(positions: Iterable[Position], *, seed: int = 0, form: str = "fen") -> Iterator[Example]:
    """The FEN after a legal move in each position. The move depends only on the seed and the position."""
    for position in positions:
        rng = random.Random(f"{seed}:{position.id}")
        moves = list(chess.Board(position.fen).legal_moves)
        move = moves[int(rng.random() * len(moves))].uci()
        prompt = ask(position, task=NEXT_FEN, form=form, move=move)
        yield _example(position, prompt, rookworld_env.step(position.fen, move).next_fen, move)


def _example(position: Position, prompt: Prompt, answer: str, move: str = "") -> Example:
    return Example(position.id, prompt.style, position.fen, prompt.messages, answer, move)
