"""Renders some positions with the answers of the players, as HTML."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

import chess
import chess.svg

from rookery.prompt import mirrored_move
from services.arena.answers import Answer, Answers, read_claims

EXAMPLES = 8

_BEST = "#1d7a46cc"
_PLAYERS = ("#8a919ccc", "#2563a8cc", "#b36a1fcc", "#7a3fa8cc")
_NOTE = (
    "Taken at even distances from the positions in the order asked, not chosen by result. Arrows: green the "
    "engine's best move, then the greedy move of each player, the first one's in grey. Underlined in the "
    "answers: claims about the board, green if they are true, red if they are false."
)


def render_examples(sides: Mapping[str, Sequence[Answers]]) -> str:
    """The heading, and at most `EXAMPLES` positions with all answers of each player."""
    count = len(next(iter(sides.values())))
    shown = min(EXAMPLES, count)
    cards = [
        _example({name: side[index * count // shown] for name, side in sides.items()})
        for index in range(shown)
    ]
    return f'<h2>Examples</h2><p class="soft">{_NOTE}</p>{"".join(cards)}'


def _example(sides: Mapping[str, Answers]) -> str:
    position = next(iter(sides.values())).position
    board = chess.Board(position.fen)
    best = next(
        (_on(board, s, a.verdict.best.uci) for s in sides.values() for a in s.every if a.verdict.best), None
    )
    answers = "".join(_side(name, side, board) for name, side in sides.items())
    return (
        f'<div class="card example"><div><img class="board" src="{_picture(board, sides, best)}" '
        f'alt="{escape(position.fen)}"><p>{"White" if board.turn else "Black"} to move, {position.phase}.<br>'
        f"Best: <strong>{escape(board.san(best)) if best else 'not judged'}</strong></p>"
        f'<p class="soft">{escape(position.id)}</p></div><div class="sides">{answers}</div></div>'
    )


def _on(board: chess.Board, side: Answers, uci: str) -> chess.Move:
    """The move on the board of the position, if the player saw a mirrored one too."""
    sees_it = chess.Board(side.fen).turn == board.turn
    return chess.Move.from_uci(uci if sees_it else mirrored_move(uci))


def _side(name: str, side: Answers, board: chess.Board) -> str:
    mirrored = chess.Board(side.fen).turn != board.turn
    note = ' <span class="soft">reads the mirrored board</span>' if mirrored else ""
    labels = ["greedy"] + ["sampled"] * len(side.samples)
    items = "".join(
        f'<li>{_verdict(answer, side, board)} <span class="soft">{label}</span>'
        f"<code>{_marked(answer, side.fen)}</code></li>"
        for label, answer in zip(labels, side.every, strict=True)
    )
    return f"<div><h3>{escape(name)}{note}</h3><ol>{items}</ol></div>"


def _marked(answer: Answer, fen: str) -> str:
    """The text with the claims that were checked on the board, as HTML."""
    reading = read_claims(answer, fen)
    parts, end = [], 0
    for claim in sorted(reading.claims if reading else (), key=lambda claim: claim.start):
        if claim.true is not None and claim.start >= end:
            kind = "better" if claim.true else "worse"
            words = escape(answer.text[claim.start : claim.end])
            parts += [escape(answer.text[end : claim.start]), f'<span class="{kind}">{words}</span>']
            end = claim.end
    return "".join([*parts, escape(answer.text[end:])])


def _verdict(answer: Answer, side: Answers, board: chess.Board) -> str:
    verdict = answer.verdict
    if verdict.move is None or verdict.regret is None:
        return f'<strong class="worse">{escape(verdict.outcome.replace("_", " "))}</strong>'
    words = "the best move" if verdict.move == verdict.best else f"regret {verdict.regret:.3f}"
    return f'<strong class="better">{escape(board.san(_on(board, side, verdict.move.uci)))}</strong> {words}'


def _picture(board: chess.Board, sides: Mapping[str, Answers], best: chess.Move | None) -> str:
    arrows = [chess.svg.Arrow(best.from_square, best.to_square, color=_BEST)] if best else []
    for place, side in enumerate(sides.values()):
        if side.greedy.verdict.move:
            move = _on(board, side, side.greedy.verdict.move.uci)
            colour = _PLAYERS[place % len(_PLAYERS)]
            arrows.append(chess.svg.Arrow(move.from_square, move.to_square, color=colour))
    svg = chess.svg.board(board, arrows=arrows, orientation=board.turn, size=250)
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
