"""Brittleness: what changes in a player's answers if the question changes and its chess does not.

Each position is asked as it is, and again in changed forms: with the colours swapped, left and right swapped,
the pieces shuffled, the legal moves left out of the prompt or added to it, another notation demanded, an
irrelevant sentence or a false claim added. The figures are paired differences: the greedy answer to the
changed question against the one to the same position as it is.

Players that read no sentences (`reads_prose`) are asked about the changed boards alone. The `mover` styles
show both colours alike.
"""

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeAlias

import chess

from arena import measures
from arena.answers import Answers
from arena.asking import Asker, Variant, prompt_of, reads_prose, style_of
from arena.players.player import Player
from arena.positions import choose, read_jsonl
from arena.sections.positions import illegal_move, mirror, mover_move
from arena.stats import Bootstrap, Ratio
from arena.tables import METRICS, Cell, Metric, MetricRow, Section, Table, compared
from rookery.answers import extract
from rookery.config.arena import QuestionsSettings
from rookery.formats import FORMATS
from rookery.prompt import LINES, mirrored_move, render, task_of
from rookery.trace import Position

AS_IS, MIRRORED, ROTATED, SHUFFLED = "as it is", "colours swapped", "left and right swapped", "shuffled"
UNLISTED, LISTED, CLAIM = "no legal moves", "legal moves", "illegal claim"
_REMARKS: Mapping[str, str] = {
    "SAN demanded": "Write the move in SAN, not in UCI.",
    "UCI demanded": "Write the move in UCI, not in SAN.",
    "irrelevant sentence": "The game was played on a rainy Tuesday, in a hall with 64 lamps.",
    CLAIM: "A grandmaster says that {move} is the best move here.",
}
_SHUFFLES = 1_000
_METRICS = METRICS["brittleness"]

Sides: TypeAlias = Mapping[str, Mapping[str, Sequence[Answers | None]]]
"""The answers by player and form. A position that has no such form has None."""


@dataclass(frozen=True, slots=True)
class Brittleness:
    """The positions that are asked in all forms."""

    chosen: Sequence[Position]
    seed: int
    name: str = "brittleness"

    async def ask(self, asker: Asker, player: Player) -> dict[str, list[Answers | None]]:
        """The player's answers by form, in the order of the positions. Raises as `Asker.positions`."""
        sides: dict[str, list[Answers | None]] = {}
        for form, (variant, positions) in self._questions(player).items():
            answered = await asker.positions(
                player, [position for position in positions if position], variant
            )
            answers = iter(answered)
            sides[form] = [next(answers) if position else None for position in positions]
        return sides

    def names(self, player: Player) -> list[str]:
        return [p.id for _, positions in self._questions(player).values() for p in positions if p]

    def _questions(self, player: Player) -> dict[str, tuple[Variant, Sequence[Position | None]]]:
        return self._forms(style_of(player), reads_prose=reads_prose(player))

    def _forms(
        self, style: str | None, *, reads_prose: bool
    ) -> dict[str, tuple[Variant, Sequence[Position | None]]]:
        plain = [replace(position, task="", move="", last_moves=()) for position in self.chosen]
        questions: dict[str, tuple[Variant, Sequence[Position | None]]] = {
            AS_IS: (Variant(AS_IS, style), plain),
            MIRRORED: (Variant(MIRRORED, style), [mirror(position) for position in plain]),
            ROTATED: (Variant(ROTATED, style), [rotate(position) for position in plain]),
            SHUFFLED: (Variant(SHUFFLED, style), [shuffle(position, seed=self.seed) for position in plain]),
        }
        if style and style.startswith("mover-"):
            questions.pop(MIRRORED)
        if style is None or not reads_prose:
            return questions
        form = "fen" if style == "fen-moves" else style.removesuffix("-legal-san").removesuffix("-legal-uci")
        if form != style:
            questions[UNLISTED] = Variant(UNLISTED, form), plain
        elif form in FORMATS:
            questions[LISTED] = Variant(LISTED, f"{form}-legal-uci"), plain
        for name, text in _REMARKS.items():
            questions[name] = Variant(name, style, remark=partial(self._remark, text, style)), plain
        return questions

    def lines(self, style: str) -> Iterator[dict[str, Any]]:
        """The questions for other harnesses, which judge them with `rookery_bridges`.

        `original` is the id of the same position as it is. `same_move` says how its move reads in the changed
        question: as the same `move`, or with `ranks` or `files` swapped; empty if there is no same move.
        """
        same = {MIRRORED: "ranks", ROTATED: "files", SHUFFLED: ""}
        for form, (variant, positions) in self._forms(style, reads_prose=style not in LINES).items():
            for original, position in zip(self.chosen, positions, strict=True):
                if position:
                    prompt = prompt_of(position, variant, style=variant.style or style)
                    yield {
                        "id": f"{original.id} {form}",
                        "prompt": [asdict(message) for message in prompt.messages],
                        "fen": prompt.fen,
                        "task": task_of(position, style=style),
                        "form": form,
                        "original": "" if form == AS_IS else f"{original.id} {AS_IS}",
                        "same_move": same.get(form, "move"),
                    }

    def _remark(self, text: str, style: str, position: Position) -> str:
        return text.format(move=self._claimed(position, render(position, style=style).fen))

    def _claimed(self, position: Position, fen: str) -> str:
        """The illegal move as the prompt writes moves, whose board `fen` may be mirrored."""
        move = claimed(position, seed=self.seed)
        mirrored = chess.Board(fen).turn != chess.Board(position.fen).turn
        return mirrored_move(move) if mirrored else move

    def section(self, sides: Sides, *, players: Sequence[str]) -> Section:
        """How the answers change, and the figures of each form. The first of `players` is the baseline."""
        forms = list(dict.fromkeys(form for by_form in sides.values() for form in by_form))
        changes, levels, moves = [], [], []
        for form in forms:
            asked = {name: by_form[form] for name, by_form in sides.items() if form in by_form}
            before = {name: sides[name][AS_IS] for name in asked}
            for name, value in (("legal", legal), ("regret", _regret)):
                metric = _METRICS[name]
                levels.append(
                    (_of(form, metric), {n: Ratio.of_values(value, side) for n, side in asked.items()})
                )
                pairs = {n: _pair(value, side, before[n]) for n, side in asked.items()}
                changes.append((_of(form, _METRICS[f"{name}_change"]), pairs))
            if form != SHUFFLED:
                same = {n: _same_move(side, before[n], rotated=form == ROTATED) for n, side in asked.items()}
                moves.append((_of(form, _METRICS["same_move"]), same))
            if form == CLAIM:
                followed = {n: Ratio.of_values(self._follows_claim, side) for n, side in asked.items()}
                moves.append((_METRICS["follows_claim"], followed))
        tables = [
            Table("changes", "Changes against the same positions as they are",
                  _changed(changes[2:], players=players, seed=self.seed)),
            Table("moves", "The same move", compared(moves[1:], players=players, seed=self.seed)),
            Table("levels", "Each form by itself", compared(levels, players=players, seed=self.seed)),
        ]  # fmt: skip
        counts = {f: max(sum(map(bool, side.get(f, ()))) for side in sides.values()) for f in forms}
        facts = {"positions": counts}
        return Section(self.name, "Brittleness", _NOTE, [table for table in tables if table.rows], facts)

    def _follows_claim(self, answers: Answers) -> bool:
        return extract(answers.greedy.text).text.lower() == self._claimed(answers.position, answers.fen)


def print_questions(settings: QuestionsSettings) -> int:
    """Prints the questions about positions of a file, one a line. Raises as `choose` and `read_jsonl`."""
    chosen = choose(read_jsonl(settings.positions), count=settings.count, seed=settings.seed)
    for line in Brittleness(chosen, settings.seed).lines(settings.style):
        sys.stdout.write(json.dumps(line) + "\n")
    return 0


_NOTE = (
    "Greedy answers. A change is that of the same positions, asked in another form: of the share of legal "
    "moves, and of the regret where both moves are legal. Left and right are swapped in positions "
    "without castling rights. Shuffled positions have the same pieces on random squares, and never occur; "
    "their regret has another scale, which the random legal move shows. The claim names an illegal move."
)


def legal(answers: Answers) -> bool:
    """Whether the greedy move is legal."""
    return measures.legal(answers.greedy)


def _regret(answers: Answers) -> float | None:
    return answers.greedy.verdict.regret if legal(answers) else None


def _of(form: str, metric: Metric) -> Metric:
    name = f"{form.replace(' ', '_')}/{metric.name}"
    if form == SHUFFLED and metric.name == "regret_change":  # it says what the positions are
        metric = replace(metric, better="neither")
    return replace(metric, name=name, title=f"{form[0].upper()}{form[1:]}: {metric.title}")


def _pair(
    value: Callable[[Answers], float | None], side: Sequence[Answers | None], before: Sequence[Answers | None]
) -> tuple[Ratio, Ratio]:
    """The means of a value of the answers and of those before, over the positions where both have one."""
    ratios = Ratio.of_values(value, side), Ratio.of_values(value, before)
    both = (ratios[0].counts > 0) & (ratios[1].counts > 0)
    return ratios[0].within(both), ratios[1].within(both)


def _same_move(side: Sequence[Answers | None], before: Sequence[Answers | None], *, rotated: bool) -> Ratio:
    """How often the moves agree, of the positions where either is legal."""
    moves = [
        (mover_move(a), mover_move(b)) if a and b else (None, None) for a, b in zip(side, before, strict=True)
    ]
    pairs = [(rotated_move(a) if a and rotated else a, b) for a, b in moves]
    return Ratio.of(
        [a is not None and a == b for a, b in pairs], [a is not None or b is not None for a, b in pairs]
    )


def _changed(
    measured: Sequence[tuple[Metric, Mapping[str, tuple[Ratio, Ratio]]]], *, players: Sequence[str], seed: int
) -> list[MetricRow]:
    """Rows of the differences of two ratios, as `compared` makes them of one."""
    ratios = {
        (row, name, side): ratio
        for row, (_, by_name) in enumerate(measured)
        for name, pair in by_name.items()
        for side, ratio in enumerate(pair)
        if ratio.counts.any()
    }
    if not ratios:
        return []
    bootstrap, baseline = Bootstrap(ratios, seed=seed), players[0]

    def cell(row: int, name: str) -> Cell:
        share = measured[row][0].unit == "share"
        change = bootstrap.difference((row, name, 0), (row, name, 1), share=share)
        keys = [(row, n, side) for n in (name, baseline) for side in (0, 1)]
        if name not in players[1:] or keys[2] not in ratios:
            return Cell(change)
        return Cell(change, bootstrap.combine(lambda m: m[:, 0] - m[:, 1] - m[:, 2] + m[:, 3], keys))

    return [
        MetricRow(metric, cells)
        for row, (metric, by_name) in enumerate(measured)
        if (cells := {name: cell(row, name) for name in by_name if (row, name, 0) in ratios})
    ]


def rotate(position: Position) -> Position | None:
    """The position with left and right swapped; None if it has castling rights, which would be lost.

    >>> from rookery.trace import Phase
    >>> position = Position("p", "4k3/8/8/8/8/8/P7/4K3 w - - 0 1", 1, Phase.ENDGAME, "g")
    >>> rotate(position).fen
    '3k4/8/8/8/8/8/7P/3K4 w - - 0 1'
    """
    board = chess.Board(position.fen)
    if board.castling_rights:
        return None
    rotated = board.transform(chess.flip_horizontal)
    # The moves before do not lead to it: most games begin where a king is not on d1.
    return replace(position, id=f"{position.id}:rotated", fen=rotated.fen(), last_moves=())


def rotated_move(uci: str) -> str:
    """A move in UCI with left and right swapped.

    >>> rotated_move("a7b8q")
    'h7g8q'
    """
    files = str.maketrans("abcdefgh", "hgfedcba")
    return uci[:4].translate(files) + uci[4:]


def shuffle(position: Position, *, seed: int) -> Position | None:
    """The same pieces on random squares, the same side to move, not in check; it depends on the position and
    `seed` alone. None if no possible position came of a thousand draws."""
    rng, board = random.Random(f"{seed}:{position.id}:shuffled"), chess.Board(position.fen)
    pieces = sorted(board.piece_map().values(), key=chess.Piece.symbol)
    pawns = [piece for piece in pieces if piece.piece_type == chess.PAWN]
    others = [piece for piece in pieces if piece.piece_type != chess.PAWN]
    for _ in range(_SHUFFLES):
        squares = rng.sample(chess.SQUARES[8:56], len(pawns))
        squares += rng.sample(sorted(set(chess.SQUARES) - set(squares)), len(others))
        drawn = chess.Board(None)
        drawn.set_piece_map(dict(zip(squares, pawns + others, strict=True)))
        drawn.turn, drawn.fullmove_number = board.turn, board.fullmove_number
        if drawn.is_valid() and not drawn.is_check() and any(drawn.legal_moves):
            return replace(position, id=f"{position.id}:shuffled", fen=drawn.fen(), last_moves=())
    return None


@lru_cache(maxsize=4096)
def claimed(position: Position, *, seed: int) -> str:
    """The illegal move, in UCI, that the false claim names."""
    return illegal_move(chess.Board(position.fen), random.Random(f"{seed}:{position.id}:claim"))
