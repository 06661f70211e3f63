"""Renders positions as prompts. No other module builds prompts.

A style is a function of the position, chosen by name: a notation of `rookery.formats`, alone or with the
legal moves (`pgn`, `pgn-legal-san`, `pgn-legal-uci`), or one of those below. The `mover` styles mirror the
board if Black is to move, so that White always moves. The answer is then read on the mirrored board
(`Prompt.fen`). This changes no reward, because a mirrored move on a mirrored board has the same reward.
The `game` styles show the game so far as plain text, one move a line, and the model writes the next line.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import chess
from pydantic import AfterValidator

from rookery.errors import InvalidInput
from rookery.formats import FORMATS, game_moves
from rookery.rookworld import RECENT, is_move, policy_prompt, state_prompt
from rookery.trace import Message, Position, Prompt

_INSTRUCTIONS = (
    "You are a strong chess player. Study the position, name a few candidate moves, reject the weaker "
    "ones with a reason, then choose. Reason inside <think> and </think>. Finish with your move in SAN "
    "or UCI inside \\boxed{}, for example \\boxed{Nf3}."
)

QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        "legal-moves": "List every legal move in UCI, in alphabetical order, separated by spaces.",
        "next-fen": "The move {move} is played. Give the FEN of the position after it.",
        "board-pieces": "List all pieces with their squares, White's first, from king to pawn, for example "
        "White King: ['e1'], White Pawn: ['a2', 'b2'].",
        "board-square": "What stands on {square}? Answer with colour and piece, or empty.",
        "board-moves": "List the legal moves of the {piece} on {square} in {notation}, or none.",
        "board-captures": "On which squares can the {piece} on {square} capture a piece? List them, or none.",
        "board-empty": "To which empty squares can the {piece} on {square} move? List them, or none.",
        "board-protected": "Which pieces of its side, but the king, does the {piece} on {square} protect? A "
        "pinned piece protects along the pin alone. List their squares, or none.",
        "board-check": "Which pieces give check, for example White Queen at e5? List them, or none.",
        "board-checks": "List the legal moves that give check in {notation}, or none.",
        "board-legal": "Is the move {move} legal? Answer yes or no.",
        "board-state": "The moves {moves} are played. Give the FEN of the position after them.",
        "board-material": "Count the material: a pawn is 1, a knight or bishop 3, a rook 5, a queen 9. "
        "Answer in the form White 39, Black 39.",
    }
)
"""The questions of the auxiliary tasks, by task name."""

POLICY_TASK, STATE_TASK = "P", "A"
"""The names of RookWorld's tasks in the reward service."""

GAME_TASK = "game"
"""The name of its task for an answer that continues a game: its first line is the move."""


def render(position: Position, *, style: str) -> Prompt:
    """The prompt of `position` in the named style. Raises `InvalidInput` if there is no such style, or the
    position has no sound FEN."""
    try:
        write = STYLES[style]
    except KeyError:
        raise InvalidInput(
            f"no prompt style {style[:40]!r}: choose from {', '.join(sorted(STYLES))}"
        ) from None
    try:
        return write(position)
    except ValueError as error:
        raise InvalidInput(f"position {position.id!r}: {error}") from error


def ask(position: Position, *, task: str, form: str = "fen", **about: str) -> Prompt:
    """The prompt of an auxiliary task: the position in a format of `rookery.formats`, and the question.

    `about` are the words that the question leaves open, such as `move`. The answer to a question about the
    board is to be boxed. Raises `InvalidInput` if there is no such task or format, or the position has no
    sound FEN.
    """
    try:
        question = QUESTIONS[task].format(**about)
    except KeyError:
        raise InvalidInput(f"no task {task!r}: choose from {', '.join(QUESTIONS)}") from None
    if form not in FORMATS:
        raise InvalidInput(f"no format {form!r}: choose from {', '.join(FORMATS)}")
    try:
        text = FORMATS[form](position.fen, position.last_moves)
    except ValueError as error:
        raise InvalidInput(f"position {position.id!r}: {error}") from error
    boxed = " Put the answer in \\boxed{}." if task.startswith("board-") else ""
    return Prompt(task, (Message("user", f"{text}\n{question}{boxed}"),), position.fen)


def piece_list(board: chess.Board) -> str:
    """Pieces as letter and square, a1 to h8, then castling rights and the en-passant square.

    >>> piece_list(chess.Board("4k3/8/8/8/8/8/4P3/R3K3 w Q - 0 1"))
    'Ra1Ke1Pe2ke8 Q -'
    """
    pieces = "".join(
        piece.symbol() + chess.SQUARE_NAMES[square] for square, piece in sorted(board.piece_map().items())
    )
    return f"{pieces} {_rights(board)}"


def _rights(board: chess.Board) -> str:
    """The castling rights and the en-passant square."""
    square = board.ep_square if board.has_legal_en_passant() else None
    return f"{board.castling_xfen()} {'-' if square is None else chess.SQUARE_NAMES[square]}"


def squares(board: chess.Board) -> str:
    """The board as 64 characters, a1 to h8, with `.` for an empty square.

    >>> squares(chess.Board())[:16]
    'RNBQKBNRPPPPPPPP'
    """
    return "".join(piece.symbol() if (piece := board.piece_at(square)) else "." for square in chess.SQUARES)


def _format_style(style: str, form: str, legal: str = "") -> Callable[[Position], Prompt]:
    def write(position: Position) -> Prompt:
        text = FORMATS[form](position.fen, position.last_moves)
        return _chat_prompt(position, style, f"{text}\n{_legal_moves(position, legal)}" if legal else text)

    return write


def _legal_moves(position: Position, notation: str) -> str:
    board = chess.Board(position.fen)
    if notation == "uci":
        return f"Legal moves (UCI): {' '.join(sorted(move.uci() for move in board.legal_moves))}"
    return f"Legal moves: {' '.join(sorted(board.san(move) for move in board.legal_moves))}"


def _board_prompt(position: Position) -> Prompt:
    side = "White" if " w " in position.fen else "Black"
    board = chess.Board(position.fen)
    return _chat_prompt(
        position,
        "board",
        f"{board}\n{side} to move. FEN: {position.fen}\n"
        f"Last moves: {' '.join(position.last_moves[-RECENT:]) or 'none'}",
    )


def _chat_prompt(position: Position, style: str, text: str) -> Prompt:
    messages = (Message("system", _INSTRUCTIONS), Message("user", text))
    return Prompt(style=style, messages=messages, fen=position.fen)


def _mover_style(style: str, text: Callable[[chess.Board], str]) -> Callable[[Position], Prompt]:
    def write(position: Position) -> Prompt:
        board = mover_board(position.fen)
        return Prompt(style, (Message("user", text(board)),), board.fen())

    return write


def _pieces_twice(board: chess.Board) -> str:
    pieces = [
        (piece.color, piece.symbol() + chess.SQUARE_NAMES[square])
        for square, piece in sorted(board.piece_map().items())
    ]
    black, white = (
        "".join(text for colour, text in pieces if colour is side) for side in (chess.BLACK, chess.WHITE)
    )
    return f"{_rights(board)} {black} {white} {white}"


def _rookworld_prompt(position: Position) -> Prompt:
    if position.task != STATE_TASK:
        return _text_prompt(position, "rookworld", policy_prompt(position.fen))
    if not is_move(position.move):
        raise ValueError(f"task A asks about a move, not {position.move!r}")
    recent = (*position.last_moves, position.move)[-RECENT:]
    return _text_prompt(position, "rookworld", state_prompt(position.fen, position.move, recent))


def game_text(start: chess.Board, moves: Iterable[chess.Move], *, style: str) -> str:
    """A game as `game-san` or `game-uci` shows it, from `start` on: a heading, then one move a line.

    >>> game_text(chess.Board(), [chess.Move.from_uci("e2e4"), chess.Move.from_uci("e7e5")], style="game-san")
    'Moves:\\ne4\\ne5\\n'
    """
    board = start.copy(stack=False)
    setup = "" if board.fen() == chess.STARTING_FEN else f"Position (FEN): {board.fen()}\n"
    lines = [GAME_STYLES[style], *(board.san_and_push(m) if style == "game-san" else m.uci() for m in moves)]
    return setup + "".join(f"{line}\n" for line in lines)


GAME_STYLES: Mapping[str, str] = MappingProxyType({"game-san": "Moves:", "game-uci": "Moves (UCI):"})
"""The heading of the moves in each `game` style."""


def _game_style(style: str) -> Callable[[Position], Prompt]:
    """Writes the whole game. If its beginning is unknown, the text starts at the position."""

    def write(position: Position) -> Prompt:
        moves = game_moves(position.fen, position.last_moves)
        start = chess.Board(position.fen) if moves is None else chess.Board()
        return _text_prompt(position, style, game_text(start, moves or (), style=style))

    return write


def _text_prompt(position: Position, style: str, text: str) -> Prompt:
    return Prompt(style, (Message("user", text),), position.fen)


def mover_board(fen: str) -> chess.Board:
    """The board with White to move: if Black is, it is flipped vertically and the colours are swapped.

    >>> mover_board("4k3/4p3/8/8/8/8/8/4K3 b - - 0 1").fen()
    '4k3/8/8/8/8/8/4P3/4K3 w - - 0 1'
    """
    board = chess.Board(fen)
    return board if board.turn else board.mirror()


def mirrored_move(uci: str) -> str:
    """A move in UCI on the mirrored board.

    >>> mirrored_move("e7e8q")
    'e2e1q'
    """
    move = chess.Move.from_uci(uci)
    flip = chess.square_mirror
    return chess.Move(flip(move.from_square), flip(move.to_square), move.promotion).uci()


STYLES: dict[str, Callable[[Position], Prompt]] = {
    **{form: _format_style(form, form) for form in FORMATS},
    **{
        f"{form}-legal-{notation}": _format_style(f"{form}-legal-{notation}", form, notation)
        for form in FORMATS
        for notation in ("san", "uci")
    },
    "fen-moves": _format_style("fen-moves", "fen", "san"),
    "board": _board_prompt,
    "mover-pieces": _mover_style("mover-pieces", piece_list),
    "mover-squares": _mover_style("mover-squares", lambda board: f"{squares(board)} {_rights(board)}"),
    "mover-twice": _mover_style("mover-twice", _pieces_twice),
    "mover-numbered": _mover_style(
        "mover-numbered", lambda board: f"{board.fullmove_number} {_pieces_twice(board)}"
    ),
    "rookworld": _rookworld_prompt,
    "rookworld-p": lambda position: _text_prompt(position, "rookworld-p", policy_prompt(position.fen)),
    **{style: _game_style(style) for style in GAME_STYLES},
}
"""Prompt styles by name. The `mover-*` styles are terse, for small models with a tokenizer of their own.
`mover-twice` lists the opponent's pieces and then the mover's twice, so that a causal model has seen all
pieces when it reads the mover's for the second time; `mover-numbered` begins with the number of the move, for
answers in prose. `rookworld` begins a `P:` or `A:` line, depending on the
position's task; `rookworld-p` always a `P:` line."""


def _check_style(style: str) -> str:
    if style not in STYLES:
        raise ValueError(f"choose from {', '.join(sorted(STYLES))}")
    return style


StyleName = Annotated[str, AfterValidator(_check_style)]
"""The name of a style in settings."""

LINES = frozenset({"rookworld", "rookworld-p", *GAME_STYLES})
"""Styles of plain text that the model continues, without chat messages or template."""


def task_of(position: Position, *, style: str) -> str:
    """The reward service's task for answers to `render(position, style=style)`; empty means "choose a move".

    >>> from rookery.trace import Phase
    >>> position = Position("p", chess.STARTING_FEN, 0, Phase.OPENING, "g", task="A", move="e2e4")
    >>> [task_of(position, style=style) for style in ("rookworld", "rookworld-p", "game-san", "fen")]
    ['A', 'P', 'game', '']
    """
    if style not in LINES:
        return ""
    if style in GAME_STYLES:
        return GAME_TASK
    return STATE_TASK if style == "rookworld" and position.task == STATE_TASK else POLICY_TASK


Notation = Literal["san", "uci"]
"""A notation of moves."""


def written(board: chess.Board, move: chess.Move, notation: Notation) -> str:
    """A legal move in a notation."""
    return board.san(move) if notation == "san" else move.uci()


def notation_of(style: str) -> Notation:
    """The notation of the moves that the style shows; UCI if it shows none.

    >>> [notation_of(style) for style in ("pieces-legal-san", "pgn", "pgn-legal-uci", "mover-twice")]
    ['san', 'san', 'uci', 'uci']
    """
    san = style.endswith("-legal-san") or style in ("fen-moves", "game-san", "pgn", "san")
    return "san" if san else "uci"


def target_of(position: Position, *, style: str) -> str:
    """The data set's answer to `render(position, style=style)`; empty if the style asks for another task."""
    return position.target if position.task == task_of(position, style=style) else ""
