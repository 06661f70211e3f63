"""Makes examples of candidate moves, with soft targets from an engine for every legal move.

The answer is `<think>M1 M2 M3</think>\\boxed{M}`, in UCI or SAN on the board that the prompt shows. The
candidates are drawn without replacement, by the probabilities below. M is the one that the engine ranks best.

A move with win probability W has this probability, where n is the number of legal moves:

    uniform / n + (best if it is the engine's first move) + (1 - best - uniform) * softmax(W / temperature)

A move that mates in n moves counts as if its W were mate / n higher: otherwise, where every move wins, a mate
would be no better than the others. A move outside the engine's lines counts as if its W were 0.1 below the
lowest W of these lines. The draw depends only on the seed and the position.

With `remarks`, the answer is also in words, each of them true:

    <think>The knight on f3 attacks the pawn on e5. Material is equal.
    M1 M2 M3</think>M attacks the queen on d6. \\boxed{M}

Every sentence is drawn from all that `commentary` finds to say there, a weightier finding more often, and
these are its soft targets.

With `line_counts`, each candidate is the first move of a line, with the opponent's best reply and the mover's
win probability after it (internal search: arXiv 2412.12119), and M is the one with the highest:

    <think>3 M1 R1 57% M2 R2 12% M3 R3 47%</think>\\boxed{M1}

The text begins with the number of lines, drawn from `line_counts`, or of all lines if there are fewer. With 0
it is `<think></think>\\boxed{M}`. The soft targets of a value are normal around it. Candidates are moves of
the engine's lines (`lines` should be more than the legal moves). Two in five are drawn with equal chances, so
that there are bad moves, too; their soft targets are the probabilities above all the same.

With `call_share`, the prompt is that of a dialogue with tools (`rookery.episodes`). This share of the answers
calls `legal_moves`, in tags; the others follow that call and its list.
"""

import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import chess

from chess_datasets.jobs import Searcher
from chess_datasets.tasks.example import ENGINE_MOVES, Example
from chess_datasets.tasks.rookworld import engine_move
from commentary import Statement, move_statements, position_statements
from rookery.alternatives import Alternatives
from rookery.episodes import tool_turns
from rookery.errors import Quarantined
from rookery.prompt import Notation, mover_board, render, written
from rookery.trace import Completion, Position, Prompt
from rookery.uci import Analysis, Line, Query
from rookery.winprob import CHECKMATE, DRAW, win_probability

logger = logging.getLogger(__name__)

_UNSEEN = 0.1
"""How far below the lowest win probability of the engine's lines any other move counts."""

_CALL, _TURNS = "<tool>legal_moves</tool>", 4
"""The call that is taught, and how many turns the question of such a dialogue offers: those of `tools`."""

_VOICE = "notebook"
_VALUES = [*range(2, 100, 5)]
"""The win probabilities of lines, in percent: the middles of 20 equal parts, rounded down. Checkmate is
100."""

_VALUE_DEVIATION = 4.0
"""Standard deviation of the soft targets of a value, in percent."""

_ANY_MOVE = 0.4
"""The share of the lines whose first move is drawn from all lines with equal chances."""

_LEAST_WEIGHT, _MOST_WEIGHT = 0.3, 6.0
"""Bounds of a finding's weight in the draw: a check has 30, which would silence everything else."""


@dataclass(frozen=True, slots=True)
class CandidateTargets:
    """The numbers of engine lines, candidates and remarks, and the parameters of the formula above.
    `line_counts` replaces the number of candidates."""

    lines: int = 8
    candidates: int = 3
    temperature: float = 0.05
    best: float = 0.3
    uniform: float = 0.1
    mate: float = 0.2
    remarks: int = 0
    line_counts: tuple[int, ...] = ()
    call_share: float = 0.0


TARGETS = CandidateTargets()


async def engine_moves(
    position: Position,
    engines: Searcher,
    *,
    style: str,
    nodes: int,
    targets: CandidateTargets,
    seed: int = 0,
    box: Notation = "uci",
) -> Example | None:
    """The example of a position, with its moves in the notation `box`. A position that kills engines has
    none, and is logged. Raises `Unavailable` if the engines are not available."""
    prompt = render(position, style=style)
    if targets.call_share:
        before, prompt = await _around_call(prompt)
        if random.Random(f"{seed}:{position.id}:call").random() < targets.call_share:
            return Example(position.id, ENGINE_MOVES, position.fen, before.messages, _CALL)
    board = chess.Board(prompt.fen)
    # White is to move on the engine's board, so colour makes no difference.
    query = Query(mover_board(prompt.fen).fen(), nodes, lines=min(targets.lines, board.legal_moves.count()))
    try:
        analysis = await engines.search(query)
    except Quarantined as error:
        logger.warning("left out: %s", error)
        return None
    compose = _compose_lines if targets.line_counts else _compose
    answer = compose(board, analysis, targets, seed=f"{seed}:{position.id}", box=box)
    alternatives = tuple(answer.alternatives)
    return Example(
        position.id, ENGINE_MOVES, position.fen, prompt.messages, answer.text, alternatives=alternatives
    )


async def _around_call(prompt: Prompt) -> list[Prompt]:
    """The prompts before and after the call of a dialogue with tools that asks what `prompt` asks."""
    texts = iter((_CALL, ""))

    async def complete(_: Prompt) -> Completion:
        return Completion(next(texts), (), (), "stop", 0)

    turns = await tool_turns(prompt, complete, turns=_TURNS)
    return [turn.prompt for turn in turns if turn.prompt]


def _compose(
    board: chess.Board, analysis: Analysis, targets: CandidateTargets, *, seed: str, box: Notation
) -> "_Answer":
    answer, drawn = _Answer("<think>"), list[str]()
    moves = {written(board, move, box): move for move in board.legal_moves}
    weights = probabilities(board, analysis, targets)
    remaining = {text: weights[move.uci()] for text, move in moves.items()}
    rng, words = random.Random(seed), random.Random(f"{seed}:remarks")
    if targets.remarks:
        about_position = position_statements(board, words, voice=_VOICE)
        # A mate that is announced would be the first candidate.
        remarks = [s for s in about_position if s.finding.concept.name != "mate in one"]
        _add_remarks(answer, remarks, targets.remarks, words)
        answer.text += "\n"
    for _ in range(min(targets.candidates, len(remaining))):
        answer.text += " " if drawn else ""
        drawn.append(answer.draw(remaining, rng))
        del remaining[drawn[-1]]
    places = {move: place for place, move in enumerate(ranking(board, analysis))}
    best = min(drawn, key=lambda text: places.get(moves[text].uci(), len(places)))
    answer.text += "</think>"
    if targets.remarks and (reasons := move_statements(board, moves[best], words, voice=_VOICE)):
        answer.text += best
        _add_remarks(answer, reasons, 1, words, gap=" ")
        answer.text += " "
    answer.text += f"\\boxed{{{best}}}"
    return answer


def _compose_lines(
    board: chess.Board, analysis: Analysis, targets: CandidateTargets, *, seed: str, box: Notation
) -> "_Answer":
    rng = random.Random(seed)
    weights = probabilities(board, analysis, targets)
    moves = {written(board, move, box): move for move in board.legal_moves}
    remaining = {text: weights[move.uci()] for text, move in moves.items()}
    lines = {line.move: line for line in map(partial(_Line.of, board, box=box), analysis.lines) if line}
    count = min(targets.line_counts[int(rng.random() * len(targets.line_counts))], len(lines))
    wins = dict[str, float]()
    answer = _Answer("<think>" + (str(count) if count else ""))
    for _ in range(count):
        answer.text += " "
        equal = rng.random() < _ANY_MOVE
        chance = {text: 1.0 if equal else remaining[text] for text in lines if text not in wins}
        line = lines[answer.draw(remaining, rng, chance=chance)]
        answer.text += f" {line.reply} " if line.reply else " "
        answer.add(_value(line.win), _values_near(line.win))
        wins[line.move] = line.win
        del remaining[line.move]
    answer.text += "</think>\\boxed{"
    if wins:
        # Of lines with the same value, such as mates in 2 and 3, the one that the engine ranks first.
        answer.text += max((move for move in lines if move in wins), key=wins.__getitem__)
    else:
        answer.draw(remaining, rng)
    answer.text += "}"
    return answer


@dataclass(frozen=True, slots=True)
class _Line:
    """A move, the best reply, and the win probability of the side that moves. There is no reply if the game
    is over."""

    move: str
    reply: str
    win: float

    @classmethod
    def of(cls, board: chess.Board, line: Line, *, box: Notation) -> "_Line | None":
        """The line of the engine on `board`; None if it ends before the reply."""
        move, *replies = (chess.Move.from_uci(engine_move(board, uci)) for uci in line.pv[:2])
        text, after = written(board, move, box), board.copy(stack=False)
        after.push(move)
        if replies:
            return cls(text, written(after, replies[0], box), win_probability(line.evaluation))
        if after.is_checkmate():
            return cls(text, "", CHECKMATE)
        return None if any(after.legal_moves) else cls(text, "", DRAW)


def _value(win: float) -> str:
    """A win probability as the text of a line's value.

    >>> [_value(win) for win in (0.02, 0.5, 0.56, 0.975, 1.0)]
    ['2%', '52%', '57%', '97%', '100%']
    """
    return "100%" if win == CHECKMATE else f"{_VALUES[min(int(20 * win), 19)]}%"


def _values_near(win: float) -> dict[str, float]:
    """The soft targets of a value."""
    if win == CHECKMATE:
        return {"100%": 1.0}
    distances = {value: (value + 0.5 - 100 * win) / _VALUE_DEVIATION for value in _VALUES}
    return {f"{value}%": math.exp(-d * d / 2) for value, d in distances.items() if abs(d) < 3}


def ranking(board: chess.Board, analysis: Analysis) -> list[str]:
    """The first moves of the engine's lines on `board`, best first."""
    return [engine_move(board, line.pv[0]) for line in analysis.lines]


def probabilities(board: chess.Board, analysis: Analysis, targets: CandidateTargets) -> dict[str, float]:
    """The probability of each legal move."""
    judged: dict[str, float] = {}
    for move, line in zip(ranking(board, analysis), analysis.lines, strict=True):
        mate = line.evaluation.mate or 0
        judged[move] = win_probability(line.evaluation) + (targets.mate / mate if mate > 0 else 0.0)
    unseen, most = min(judged.values()) - _UNSEEN, max(judged.values())
    legal = [move.uci() for move in board.legal_moves]
    soft = [math.exp((judged.get(move, unseen) - most) / targets.temperature) for move in legal]
    share = (1 - targets.best - targets.uniform) / sum(soft)
    weights = {m: targets.uniform / len(legal) + share * s for m, s in zip(legal, soft, strict=True)}
    weights[next(iter(judged))] += targets.best
    return weights


@dataclass(slots=True)
class _Answer:
    """An answer that is being written, with the alternatives to each drawn part of it."""

    text: str
    alternatives: list[Alternatives] = field(default_factory=list)

    def draw(
        self, weights: Mapping[str, float], rng: random.Random, *, chance: Mapping[str, float] | None = None
    ) -> str:
        """Adds one of the texts to the answer, and returns it. It is drawn by `chance`, if that is given."""
        chance = chance or weights
        point, chosen = rng.random() * sum(chance.values()), ""
        for chosen, weight in chance.items():  # noqa: B007 -- rounding may leave the last one
            point -= weight
            if point < 0:
                break
        self.add(chosen, weights)
        return chosen

    def add(self, chosen: str, weights: Mapping[str, float]) -> None:
        """Adds a text, which is one of `weights`."""
        rounded = {text: float(f"{weight:.4g}") for text, weight in weights.items()}
        start, self.text = len(self.text), self.text + chosen
        self.alternatives.append(Alternatives(start, len(self.text), tuple(rounded), tuple(rounded.values())))


def _add_remarks(
    answer: _Answer, statements: Sequence[Statement], most: int, rng: random.Random, *, gap: str = ""
) -> None:
    """Adds up to `most` sentences to the answer, after `gap`. None of them repeats another one."""
    remaining = list(statements)
    for _ in range(most):
        if not remaining:
            break
        weights, statement_of = dict[str, float](), dict[str, Statement]()
        for statement in remaining:
            bounded = min(_MOST_WEIGHT, max(_LEAST_WEIGHT, statement.finding.weight))
            for text in statement.sentences:
                # A token of a tokenizer of words begins with the space before it.
                statement_of.setdefault(gap + text, statement)
                weights[gap + text] = weights.get(gap + text, 0.0) + bounded / len(statement.sentences)
        text = answer.draw(weights, rng)
        drawn, text = statement_of[text], text.removeprefix(gap)
        remaining = [s for s in remaining if not s.repeats(drawn) and text not in s.sentences]
        gap = " "
