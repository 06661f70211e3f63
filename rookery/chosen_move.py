"""The move that an answer of a model chooses."""

import chess

from rookery.answers import after_reasoning, extract, first_line
from rookery.notation import MoveReading, read_move
from rookery.prompt import GAME_STYLES, LINES, mirrored_move
from rookery.rookworld import read_policy_answer
from rookery.trace import Outcome, Prompt


def chosen_move(text: str, prompt: Prompt, board: chess.Board, *, truncated: bool = False) -> MoveReading:
    r"""The move that `text`, an answer to `prompt`, chooses on `board`.

    It is in the last box, the first line of a game that goes on, or the best move of a `P:` line. If the
    prompt shows a mirrored board, the text is read on that board and the move mirrored back.

    >>> from rookery.prompt import render
    >>> from rookery.trace import Phase, Position
    >>> board = chess.Board("4k3/4p3/8/8/8/8/8/4K3 b - - 0 1")
    >>> prompt = render(Position("p", board.fen(), 1, Phase.ENDGAME, "g"), style="mover-squares")
    >>> chosen_move(r"\boxed{e2e4}", prompt, board).move
    Move.from_uci('e7e5')
    """
    prompt_board = chess.Board(prompt.fen)
    if prompt.style in LINES.difference(GAME_STYLES):
        line = read_policy_answer(after_reasoning(text))
        missing = Outcome.TRUNCATED if truncated else Outcome.UNPARSABLE
        reading = read_move(line.best, prompt_board) if line else MoveReading(missing)
    else:
        answer = (first_line if prompt.style in GAME_STYLES else extract)(text, truncated=truncated)
        reading = MoveReading(answer.missing) if answer.missing else read_move(answer.text, prompt_board)
    if reading.move is not None and prompt_board.turn != board.turn:
        reading = MoveReading(reading.outcome, chess.Move.from_uci(mirrored_move(reading.move.uci())))
    return reading
