"""Positions: legality, regret and the order of candidates, by the reward service's verdicts.

A language model is also asked about the colour-mirrored position, with and without the list of legal moves,
for RookWorld's lines if its style has them, and, with `styles`, in each of the position formats.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import chess

from arena.answers import Answers
from arena.asking import Asker, BestMover, Variant, style_of
from arena.measures import (
    BOTH_LEGAL,
    Measure,
    best,
    both_legal,
    legal,
    line_metrics,
    mean,
    move_metrics,
    parts_of,
    readable,
    regret,
    sampled,
)
from arena.pieces import BEST, RANDOM, piece_table
from arena.players.dialogue import ToolsPlayer
from arena.players.player import Player
from arena.stats import Ratio
from arena.tables import METRICS, Measured, Section, Table, by_part, compared
from rookery.answers import empty_reasoning
from rookery.formats import FORMATS
from rookery.prompt import LINES, STATE_TASK, mirrored_move, render
from rookery.trace import Position

MOVE, LISTED, UNLISTED, MIRRORED, STATE = "move", "listed", "unlisted", "mirrored", "A"
UNREASONED = "unreasoned"
"""Names of variants. `listed` and `unlisted` have or lack the legal moves; one equals `move`. Answers to
`unreasoned` begin with the box, after empty marks of reasoning if the model writes such marks: else it may
reason in the box."""

AnswersByVariant = Mapping[str, Sequence[Answers]]
"""The answers of one player by variant."""

_METRICS = METRICS["positions"]
_ILLEGAL_SHARE = 0.1
"""The share of `A:` questions whose move is not legal."""


@dataclass(frozen=True, slots=True)
class PositionQuestions:
    """The positions and how they are asked: `samples` sampled answers besides the greedy one. With
    `unreasoned`, language models on vLLM also answer with the box alone."""

    chosen: Sequence[Position]
    samples: int
    styles: bool
    seed: int
    name: str = "positions"
    unreasoned: bool = False

    async def ask(self, asker: Asker, player: Player) -> dict[str, list[Answers]]:
        """The player's answers by variant. See `Asker.positions` for the errors."""
        answers = dict[str, list[Answers]]()
        for variant, positions in self._questions(player):
            if variant.begin:
                if not await asker.continues(player):
                    continue
                begin = next(filter(None, (empty_reasoning(a.greedy.text) for a in answers[MOVE])), "")
                variant = replace(variant, begin=begin + variant.begin)
            answers[variant.name] = await asker.positions(player, positions, variant)
        answers.setdefault(MIRRORED, answers[MOVE])
        if {LISTED, UNLISTED} & answers.keys():
            answers = {LISTED: answers[MOVE], UNLISTED: answers[MOVE], **answers}
        return answers

    def names(self, player: Player) -> list[str]:
        return [position.id for _, positions in self._questions(player) for position in positions]

    def _questions(self, player: Player) -> list[tuple[Variant, Sequence[Position]]]:
        style, plain = style_of(player), [replace(p, task="", move="") for p in self.chosen]
        if isinstance(player, BestMover):
            return [(Variant(MOVE, None), plain)]
        mirrored = [mirror(position) for position in plain]
        questions: list[tuple[Variant, Sequence[Position]]] = [
            (Variant(MOVE, style, self.samples, ranks=style is not None), plain)
        ]
        if style is None:
            return [*questions, (Variant(MIRRORED, None), mirrored)]
        if render(plain[0], style=style).messages != render(mirrored[0], style=style).messages:
            questions.append((Variant(MIRRORED, style), mirrored))
        form = style.removesuffix("-legal-san").removesuffix("-legal-uci")
        if form in FORMATS:
            name, form_style = (LISTED, f"{form}-legal-uci") if style == form else (UNLISTED, form)
            questions.append((Variant(name, form_style), plain))
        if style == "rookworld":
            questions.append(
                (Variant(STATE, style), [_about_a_move(position, seed=self.seed) for position in plain])
            )
        if self.unreasoned and style not in LINES and not isinstance(player, ToolsPlayer):
            questions.append((Variant(UNREASONED, style, begin="\\boxed{"), plain))
        if self.styles and style not in LINES:
            questions += [(Variant(form, form), plain) for form in FORMATS]
        return questions

    def section(self, answers: Mapping[str, AnswersByVariant], *, players: Sequence[str]) -> Section:
        """The tables of all players and references. The first of `players` is the baseline."""

        def table(name: str, title: str, rows: Measured) -> Table:
            return Table(name, title, compared(rows, players=players, seed=self.seed))

        move_answers = {name: variants[MOVE] for name, variants in answers.items()}
        rows = [
            (metric, _ratios(measure, move_answers)) for metric, measure in move_metrics(self.samples).items()
        ]
        player_answers = {name: move_answers[name] for name in players}
        rows.append((BOTH_LEGAL, both_legal(player_answers)))
        for variant in (LISTED, UNLISTED):
            metric = _METRICS[f"legal_rate_{variant}"]
            rows.append((metric, _ratios(mean(legal), _answers_to(answers, variant))))
        rows.append(
            (
                _METRICS["mirror_consistency"],
                {name: _consistency(variants) for name, variants in answers.items()},
            )
        )
        tables = [
            table("metrics", "All positions", rows),
            table("parts", "Parts of the positions", _by_part(move_answers, player_answers)),
            piece_table(player_answers, move_answers[BEST], seed=self.seed),
            *(
                table(
                    f"{task}_lines",
                    f"{task}: lines",
                    [(metric, _ratios(measure, side)) for metric, measure in line_metrics(task).items()],
                )
                for task, side in _lines(answers).items()
            ),
            table("styles", "Position formats", _by_style(answers)),
        ]
        outcomes = {
            name: dict(Counter(a.verdict.outcome for s in side for a in s.every))
            for name, side in move_answers.items()
        }
        return Section(
            "positions",
            "Positions",
            _NOTE,
            [table for table in tables if table.rows],
            {"outcomes": outcomes},
        )


def _by_part(
    move_answers: Mapping[str, Sequence[Answers]], player_answers: Mapping[str, Sequence[Answers]]
) -> Measured:
    measured = [
        (_METRICS["legal_rate"], _ratios(mean(legal, sampled), move_answers)),
        (_METRICS["regret_legal"], _ratios(mean(regret, sampled, where=legal), move_answers)),
        (BOTH_LEGAL, both_legal(player_answers)),
    ]
    return by_part(measured, parts_of(next(iter(move_answers.values()))), what="positions")


_NOTE = (
    "Intervals are from a bootstrap over positions; of shares with one answer to a position, or the same at "
    "all, they are Wilson's. Unless it says greedy, a figure is over sampled answers. "
    "Regret is the win probability given away against the engine's best move. The random legal move is drawn "
    "anew for each answer of a player."
)


def mirror(position: Position) -> Position:
    """The position with the board flipped and the colours swapped."""
    moves = tuple(mirrored_move(move) for move in position.last_moves)
    fen = chess.Board(position.fen).mirror().fen()
    return replace(position, id=f"{position.id}:mirrored", fen=fen, last_moves=moves)


def _about_a_move(position: Position, *, seed: int) -> Position:
    """The position with a move to ask an `A:` question about; it depends only on the position and `seed`."""
    rng, board = random.Random(f"{seed}:{position.id}:A"), chess.Board(position.fen)
    move = rng.choice(sorted(move.uci() for move in board.legal_moves))
    if rng.random() < _ILLEGAL_SHARE:
        move = illegal_move(board, rng)
    return replace(position, task=STATE_TASK, move=move)


def illegal_move(board: chess.Board, rng: random.Random) -> str:
    """A move in UCI from a piece of the side to move that is not legal."""
    squares = [
        chess.Move(a, b)
        for a in chess.SQUARES
        for b in chess.SQUARES
        if a != b and board.color_at(a) == board.turn
    ]
    return rng.choice([move.uci() for move in squares if not board.is_legal(move)])


def _lines(answers: Mapping[str, AnswersByVariant]) -> dict[str, dict[str, Sequence[Answers]]]:
    """The answers that are RookWorld's lines, by task and player, of the tasks that were asked."""
    moves = {name: variants[MOVE] for name, variants in answers.items()}
    sides = {
        "P": {name: side for name, side in moves.items() if side[0].greedy.line is not None},
        "A": {name: variants[STATE] for name, variants in answers.items() if STATE in variants},
    }
    return {task: side for task, side in sides.items() if side}


def _ratios(measure: Measure, sides: Mapping[str, Sequence[Answers]]) -> dict[str, Ratio]:
    return {name: measure(side) for name, side in sides.items()}


def _answers_to(answers: Mapping[str, AnswersByVariant], variant: str) -> dict[str, Sequence[Answers]]:
    """The answers of players that were asked this variant, and of the references, which read no prompt."""
    sides = {name: variants[variant] for name, variants in answers.items() if variant in variants}
    references = {name: answers[name][MOVE] for name in (RANDOM, BEST) if name in answers}
    return {**sides, **references} if sides else {}


def _consistency(answers: AnswersByVariant) -> Ratio:
    pairs = [(mover_move(a), mover_move(b)) for a, b in zip(answers[MOVE], answers[MIRRORED], strict=True)]
    return Ratio.of(
        [float(a == b and a is not None) for a, b in pairs],
        [float(a != b or a is not None) for a, b in pairs],
    )


def mover_move(answers: Answers) -> str | None:
    """The greedy move as if White were to move; None if it is not legal."""
    move = answers.greedy.verdict.move
    if move is None:
        return None
    return move.uci if chess.Board(answers.fen).turn else mirrored_move(move.uci)


def _by_style(answers: Mapping[str, AnswersByVariant]) -> Measured:
    measured: dict[str, Measure] = {
        "legal_rate_greedy": mean(legal),
        "action_accuracy_greedy": mean(best),
        "regret_legal_greedy": mean(regret, where=legal),
        "box_rate_greedy": mean(readable),
    }
    return [
        (
            replace(metric, name=f"{form}/{name}", title=f"{form}: {metric.title}"),
            _ratios(measured[name], _answers_to(answers, form)),
        )
        for form in FORMATS
        for name, metric in METRICS["styles"].items()
    ]
