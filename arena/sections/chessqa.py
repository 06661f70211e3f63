"""ChessQA (arXiv 2510.23948): questions about positions in prose, scored as its authors score them.

The answer is the rest of the line after the last `FINAL ANSWER:`, without asterisks, or else the box of "The
final answer is \\boxed{...}". A single answer must be the key's but for capitals; of several, separated by
commas, the set must be. An answer that reaches 98% of its token limit counts as cut, whatever it says.
Only language models that read sentences are asked. The reference `rules` answers by the rules of chess and by
material.

The protocol `c1` is that of CSSLab/C1 (arXiv 2603.20510): its prompt with pieces and legal moves, the short
tactics alone, and the first `FINAL_ANSWER: ` with a move in UCI, which must be the key's. None counts as cut.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import chess
from pydantic import BaseModel, Field, ValidationError

from arena.asking import Asker, reads_prose
from arena.chessqa_rules import piece_title, rule_based_answer
from arena.players.model import ModelPlayer
from arena.players.player import Player
from arena.stats import Ratio
from arena.tables import Metric, Section, Table, compared
from rookery.answers import after_reasoning
from rookery.encoding import decode
from rookery.errors import QUOTED_CHARS, InvalidInput, validation_message
from rookery.fen import FenReport
from rookery.trace import Message, Prompt

RULES = "rules of chess and material"
_CUT_SHARE = 0.98
_MARK = "FINAL ANSWER:"
_CONTEXT, _EXAMPLE = "CONTEXT_PLACEHOLDER", "FORMAT_EXAMPLE_PLACEHOLDER"
_FINAL = re.compile(rf"{_MARK}(?=[\s\S])\s*([^\n]*)", re.IGNORECASE)
_FINAL_MOVE = re.compile(r"FINAL_ANSWER:\s*([a-h][1-8][a-h][1-8][qrbn]?)", re.IGNORECASE)
_FINAL_BOX = re.compile(r"[Tt]he\s{1,8}final\s{1,8}answer\s{1,8}is\s{1,8}\$?\\boxed\{([^}]{1,2000})\}")
_BOX = re.compile(r"\\boxed\{([^}\n]{1,2000})\}")
_MOST_CHARS = 200_000
"""Of an answer, those at its end, and of a line of a file."""

Result = Literal["right", "wrong", "extra", "missing", "false", "no answer", "cut"]
"""Of several answers: `extra` has all of the key's and others, `missing` only some of the key's, `false`
lacks some and has others."""


_C1 = """\
You are given a chess position in FEN: {fen}.
Piece positions: {pieces}
Legal moves: {moves}
Find the best move for the side to play.
Analyze step by step and explain your reasoning.
Finish with a single line formatted EXACTLY as:
FINAL_ANSWER: <answer>
Use UCI notation (e.g., e2e4, c2b1q) for the final answer."""


class ChessQAQuestion(BaseModel, frozen=True):
    """A line of ChessQA's files."""

    id: str = Field(alias="task_id", max_length=200)
    kind: str = Field(alias="task_type", max_length=100)
    category: str = Field(alias="task_category", max_length=100)
    input: str = Field(max_length=2_000)
    """The FEN, and the moves after it if the question has any: `FEN | e2e4 e7e5`."""
    text: str = Field(alias="question", max_length=20_000)
    examples: tuple[str, ...] = Field(alias="format_examples")
    key: str = Field(alias="correct_answer", max_length=20_000)
    answer_type: Literal["single", "multi"]
    metadata: Mapping[str, Any]

    def prompt(self, *, context: bool) -> Prompt:
        """What a model is asked; with `context` it also gets all pieces and the legal moves."""
        board = chess.Board(self.input.partition("|")[0].strip())
        moves = ", ".join(sorted(move.uci() for move in board.legal_moves))
        pieces_and_moves = f"Piece arrangement: {_pieces(board)}\nLegal moves: {moves}\n\n" if context else ""
        example = self.examples[0] if self.examples else ""
        text = self.text.replace(_CONTEXT, pieces_and_moves).replace(_EXAMPLE, example)
        return Prompt("chessqa", (Message("user", text),), board.fen())

    def c1_prompt(self) -> Prompt:
        """What C1 asks a model."""
        fen = self.input.partition("|")[0].strip()
        board = chess.Board(fen)
        armies = [
            f"{piece_title(chess.Piece(kind, colour))}: {sorted(map(chess.square_name, squares))}"
            for colour in (chess.WHITE, chess.BLACK)
            for kind in reversed(chess.PIECE_TYPES)
            if (squares := board.pieces(kind, colour))
        ]
        text = _C1.format(
            fen=fen, pieces=", ".join(armies), moves=", ".join(map(chess.Move.uci, board.legal_moves))
        )
        return Prompt("c1", (Message("user", text),), board.fen())

    def result(self, answer: str | None) -> Result:
        """How the answer compares with the key; None is one that was not found."""
        if answer is None:
            return "no answer"
        if self.answer_type == "single":
            return "right" if answer.lower().strip() == self.key.lower().strip() else "wrong"
        items, key = _items(answer), _items(self.key)
        if items == key:
            return "right"
        if items > key:
            return "extra"
        return "missing" if items < key else "false"


def final_answer(text: str) -> str | None:
    """The answer that a text ends with, or None.

    >>> final_answer("So it is mate.\\nFINAL ANSWER: **e2e4, d2d4**\\n")
    'e2e4, d2d4'
    """
    text = after_reasoning(text)[-_MOST_CHARS:]
    if lines := _FINAL.findall(text):
        answer = str(lines[-1]).strip()
        if answer[: len(_MARK)].upper() == _MARK:  # the mark twice in a line
            answer = answer[len(_MARK) :].strip()
        return answer.strip("*").strip()
    boxes = _FINAL_BOX.findall(text)
    return str(boxes[-1]).strip() if boxes else None


def _read(line: str, *, context: bool) -> ChessQAQuestion:
    """The question of a line. Raises `ValueError` or `TypeError` if it is none, or it cannot be asked or
    answered by the rules, so that nothing is asked in vain."""
    if len(line) > _MOST_CHARS:
        raise ValueError(f"{len(line):,} characters, more than {_MOST_CHARS:,}")
    try:
        question = ChessQAQuestion.model_validate_json(line)
    except ValidationError as error:
        raise ValueError(validation_message(error.errors()[:1], root="the line")) from error
    question.prompt(context=context)
    rule_based_answer(question.kind, question.input, question.metadata)
    return question


def _questions_of(path: Path, report: FenReport, *, context: bool) -> list[ChessQAQuestion]:
    questions = []
    try:
        # Not splitlines: a string of JSON may hold the other characters that it splits at.
        lines = StringIO(decode(path.read_bytes()), newline=None).readlines()
    except OSError as error:
        raise InvalidInput(f"ChessQA {str(path)!r}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            questions.append(_read(line, context=context))
        except (TypeError, ValueError) as error:
            report.skip(f"{path.name}:{number}", str(error)[:QUOTED_CHARS])
    if not questions:
        raise InvalidInput(f"no questions of ChessQA in {str(path)!r}: {report.reasons}")
    return questions


def _items(answer: str) -> set[str]:
    return {item.strip().lower() for item in answer.split(",") if item.strip()}


def _pieces(board: chess.Board) -> str:
    squares: dict[str, list[str]] = defaultdict(list)
    for square, piece in sorted(board.piece_map().items()):
        squares[piece_title(piece)].append(chess.square_name(square))
    return ", ".join(f"{piece}: {names}" for piece, names in squares.items())


@dataclass(frozen=True, slots=True)
class Response:
    """What became of a question. `boxed` tells whether it is right if the last box counts as the answer."""

    result: Result
    boxed: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class ChessQA:
    """Questions of ChessQA. `report` names the lines that are none."""

    questions: Sequence[ChessQAQuestion]
    context: bool = False
    seed: int = 0
    report: FenReport = field(default_factory=FenReport)
    protocol: Literal["chessqa", "c1"] = "chessqa"
    name: str = "chessqa"

    @classmethod
    def read(
        cls,
        paths: Sequence[Path],
        *,
        count: int,
        context: bool,
        seed: int,
        protocol: Literal["chessqa", "c1"] = "chessqa",
    ) -> "ChessQA":
        """The first `count` questions of each type in the files that the protocol asks. Raises
        `InvalidInput` if a file cannot be read, or none of its lines is a question."""
        report = FenReport()
        every = [question for path in paths for question in _questions_of(path, report, context=context)]
        if protocol == "c1":
            every = [question for question in every if question.kind.startswith("short_tactics")]
        if not every:
            raise InvalidInput(f"no short tactics, which c1 asks for, in {', '.join(map(str, paths))}")
        counts, questions = Counter[str](), []
        for question in every:
            counts[question.kind] += 1
            questions += [question] if counts[question.kind] <= count else []
        return cls(questions, context, seed, report, protocol)

    def names(self, player: Player) -> list[str]:
        return [question.id for question in self.questions] if reads_prose(player) else []

    async def ask(self, asker: Asker, player: Player) -> list[Response]:
        """The player's responses, in the order of the questions; none if it is no language model. See
        `Asker.positions` for the errors."""
        if not isinstance(player, ModelPlayer) or not reads_prose(player):
            return []

        async def ask_question(question: ChessQAQuestion) -> Response:
            c1 = self.protocol == "c1"
            prompt = question.c1_prompt() if c1 else question.prompt(context=self.context)

            async def complete() -> dict[str, Any]:
                (completion,) = await player.complete(prompt, count=1, seed=asker.seed)
                # A player that answers several times counts the tokens of all; each has a log-probability.
                in_answer = len(completion.logprobs)
                limit = _CUT_SHARE * player.sampling.max_tokens
                record = {"text": completion.text, "tokens": len(completion.token_ids),
                          "cut": completion.truncated or in_answer >= limit}  # fmt: skip
                outcome = self._response(question, record).result
                return {**record, "fen": prompt.fen, "task": question.kind, "outcome": outcome}

            key = {"chessqa": prompt.messages[0].content, "seed": asker.seed}
            return self._response(question, await asker.recall(player, question.id, key, complete))

        return await asker.each(ask_question, self.questions)

    def _response(self, question: ChessQAQuestion, record: Mapping[str, Any]) -> Response:
        text, cut = str(record["text"]), bool(record["cut"])
        if self.protocol == "c1":
            move = _FINAL_MOVE.search(text[-_MOST_CHARS:])
            result = question.result(move[1] if move else None)
            return Response(result, result == "right", record["tokens"])
        result = "cut" if cut else question.result(final_answer(text))
        boxes = [] if cut else _BOX.findall(after_reasoning(text)[-_MOST_CHARS:])
        in_box = bool(boxes) and question.result(boxes[-1]) == "right"
        return Response(result, result == "right" or in_box, record["tokens"])

    def section(self, responses: Mapping[str, Sequence[Response]], *, players: Sequence[str]) -> Section:
        """Right answers in all, by category and by type, kinds of errors, and the reference `RULES`."""
        answered = {name: side for name, side in responses.items() if side}
        names = [name for name in players if name in answered]
        if not names:
            return Section(self.name, "ChessQA", "", [])
        answered[RULES] = [self._response_by_rules(question) for question in self.questions]

        def share(result: Result) -> dict[str, Ratio]:
            return {n: Ratio.of([r.result == result for r in side]) for n, side in answered.items()}

        right = share("right")
        boxed = {n: Ratio.of([r.boxed for r in side]) for n, side in answered.items()}
        results: tuple[Result, ...] = ("no answer", "cut", "wrong", "extra", "missing", "false")
        errors = [
            (Metric(f"result/{result}", result.capitalize(), better="neither"), share(result))
            for result in results
        ]
        tokens = {n: Ratio.of([r.tokens for r in side]) for n, side in responses.items() if side}
        metrics = [
            (Metric("right", "Right answers", "as the benchmark scores them"), right),
            (Metric("boxed", "Right, if a box counts", "an answer in \\boxed{} counts too"), boxed),
            *errors,
            (Metric("tokens", "Tokens an answer", unit="count", better="neither"), tokens),
        ]
        tables = [
            Table(
                "metrics",
                f"{len(self.questions):,} questions",
                compared(metrics, players=names, seed=self.seed),
            )
        ]
        for key, title in (("category", "By category"), ("kind", "By type of question")):
            parts = [(part, [getattr(q, key) == part for q in self.questions])
                     for part in dict.fromkeys(getattr(q, key) for q in self.questions)]  # fmt: skip
            rows = [
                (Metric(f"{key}/{part}", part.replace("_", " "), f"{sum(mask):,} questions"),
                 {name: ratio.within(mask) for name, ratio in right.items()})
                for part, mask in parts
            ]  # fmt: skip
            tables.append(Table(key, title, compared(rows, players=names, seed=self.seed)))
        form = "C1's prompt, which has" if self.protocol == "c1" else "With" if self.context else "Without"
        note = (
            f"{form} the pieces and legal moves in the question. "
            "`rules` knows the rules of chess, and guesses the rest by material."
        )
        facts = {**self.report.facts, "context": self.context, "protocol": self.protocol}
        return Section(self.name, "ChessQA", note, tables, facts)

    def _response_by_rules(self, question: ChessQAQuestion) -> Response:
        answer = rule_based_answer(question.kind, question.input, question.metadata)
        result = question.result(answer)
        return Response(result, result == "right", 0)
