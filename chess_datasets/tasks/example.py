"""Questions with their answers: one record type for all tasks of data sets.

* `P`, `A`: RookWorld's lines, split where the model's answer begins (see `chess_datasets.tasks.rookworld`).
* `board-...`: a question about a board (see `chess_datasets.tasks.board`).
* `legal-moves`: a position; the answer is every legal move.
* `next-fen`: a position and a legal move; the answer is the position after it.
* `engine-moves`: a position; the answer is candidate moves and the best of them
  (see `chess_datasets.tasks.engine_moves`).
* `puzzle`: a position from a Lichess puzzle; the answer is the solution's move
  (see `chess_datasets.tasks.puzzles`).

The prompts are written by `rookery.prompt`. Answers that follow from the rules of chess are computed by
`rookery.rookworld_env`.
"""

import random
from dataclasses import dataclass

import chess

from chess_datasets.store.parquet import Kind
from rookery import rookworld, rookworld_env
from rookery.alternatives import Alternatives
from rookery.prompt import ask
from rookery.rookworld import PolicyLine, StateLine
from rookery.trace import Message, Position

POLICY, STATE, LEGAL_MOVES, NEXT_FEN, PUZZLE = "P", "A", "legal-moves", "next-fen", "puzzle"
ENGINE_MOVES = "engine-moves"


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and its right answer. `fen` is the board that the question is about. `move` is the move that
    it is about, or empty. `alternatives` are soft targets for `rookery sft`."""

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
        """Prompt and answer as text: one line for `P` and `A`, otherwise each message on its own lines."""
        end = "" if self.task in (POLICY, STATE) else "\n"
        return "".join(f"{turn['content']}{end}" for turn in self.messages)


EXAMPLES = Kind("examples", Example)


def rookworld_example(
    position: Position, line: PolicyLine | StateLine, *, layout: str = "published"
) -> Example:
    """The example of a `P:` or `A:` line. `layout` is a key of `rookery.rookworld.LAYOUTS`."""
    if isinstance(line, StateLine):
        prompt = rookworld.state_prompt(line.fen, line.move, line.recent)
        answer = rookworld.state_answer(line.answer)
        return Example(
            position.id, STATE, line.fen, prompt=(Message("user", prompt),), answer=answer, move=line.move
        )
    prompt = rookworld.policy_prompt(line.fen, layout=layout)
    answer = rookworld.policy_answer(line.answer, layout=layout)
    return Example(position.id, POLICY, line.fen, (Message("user", prompt),), answer)


def legal_moves(position: Position, *, form: str = "fen") -> Example:
    """Asks for all legal moves of a position, sorted, in UCI. `form` is a key of `formats.FORMATS`."""
    answer = " ".join(sorted(move.uci() for move in chess.Board(position.fen).legal_moves))
    messages = ask(position, task=LEGAL_MOVES, form=form).messages
    return Example(position.id, LEGAL_MOVES, position.fen, messages, answer)


def next_fen(position: Position, *, seed: int = 0, form: str = "fen") -> Example:
    """Asks for the FEN after a legal move. The move depends only on the seed and the position."""
    rng = random.Random(f"{seed}:{position.id}")
    moves = list(chess.Board(position.fen).legal_moves)
    move = moves[int(rng.random() * len(moves))].uci()
    messages = ask(position, task=NEXT_FEN, form=form, move=move).messages
    answer = rookworld_env.step(position.fen, move).answer.next_fen
    return Example(position.id, NEXT_FEN, position.fen, prompt=messages, answer=answer, move=move)
