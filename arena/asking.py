"""Asks a player about positions, and has its answers judged by the reward service.

Every answer is first looked for in the store. Sample i of a position has the same seed for all players. If a
request fails for good, the evaluation stops: no answer is made up, and no position is left out silently.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import chess

from arena.answer_store import AnswerStore, key_of
from arena.answers import Answers, PlayerAnswer, answer_from_json
from arena.players.dialogue import ToolAnswer, ToolsPlayer
from arena.players.model import ModelPlayer
from arena.players.player import Player
from rookery.candidates import candidates_of, distinct
from rookery.clients import RewardClient, ScoreItem
from rookery.engines.player import Reply
from rookery.errors import RookeryError, WireError
from rookery.prompt import GAME_TASK, LINES, POLICY_TASK, STATE_TASK, render, task_of
from rookery.rookworld import read_policy_answer
from rookery.trace import Message, Outcome, Position, Prompt, Verdict

TERMS = ("seed", "temperature")
"""The settings that the record of an answer names if the question depends on them."""

Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class BestMover:
    """A reference: plays the move that the reward service calls the best."""

    name: str
    reward: RewardClient

    def describe(self) -> Mapping[str, object]:
        return {"kind": "best move of the reward service"}

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        fen = board.fen()
        move = next(iter(board.legal_moves))
        [verdict] = await self.reward.score([ScoreItem(fen, f"\\boxed{{{move}}}")])
        if verdict.best is None:
            raise WireError(f"verdict on the legal move {move} in {fen!r} without the best move: {verdict!r}")
        return Reply(chess.Move.from_uci(verdict.best.uci), Outcome.LEGAL)

    async def close(self) -> None:
        pass


def style_of(player: Player) -> str | None:
    """The prompt style that the player reads; None if it is not a language model."""
    return player.style if isinstance(player, ModelPlayer) else None


def reads_prose(player: Player) -> bool:
    """Whether the player is a language model that can be asked in sentences. Those of plain text continue a
    game, and models of this project that read the `mover` styles have a vocabulary of their own."""
    if not isinstance(player, ModelPlayer) or player.style in LINES:
        return False
    return not (player.source and player.style.startswith("mover-"))


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to ask about positions. `style` is None for players that read no prompt."""

    name: str
    style: str | None
    samples: int = 0
    ranks: bool = False
    """Whether the moves that the greedy answer names are judged too."""
    begin: str = ""
    """The beginning of the answer, which the player continues."""
    remark: Callable[[Position], str] | None = None
    """A sentence about the position, which the question ends with."""


def prompt_of(position: Position, variant: Variant, *, style: str) -> Prompt:
    """The question, without the beginning of its answer."""
    prompt = render(position, style=style)
    if variant.remark is None:
        return prompt
    *before, last = prompt.messages
    text = f"{last.content}\n{variant.remark(position)}"
    return replace(prompt, messages=(*before, replace(last, content=text)))


@dataclass(frozen=True, slots=True)
class _Text:
    """What a player wrote."""

    text: str
    tokens: int = 0
    truncated: bool = False
    calls: int | None = None


@dataclass(slots=True)
class Budget:
    """How long to ask, and how many tokens all answers may have. None is no limit."""

    seconds: float | None = None
    tokens: int | None = None
    started: float = field(default_factory=time.monotonic)

    def check(self, store: AnswerStore) -> None:
        """Raises `RookeryError` if it is spent."""
        if self.seconds is not None and time.monotonic() - self.started > self.seconds:
            raise RookeryError(
                f"the budget of {self.seconds / 60:g} minutes is spent: the same command continues"
            )
        if self.tokens is not None and store.tokens >= self.tokens:
            raise RookeryError(
                f"the budget of {self.tokens:,} tokens is spent: the answers have {store.tokens:,}"
            )


@dataclass(slots=True)
class Asker:
    """Asks and judges with one set of settings.

    Attributes:
        reward_version: that of the reward service; part of the key of every judged answer.
        temperature: that of the sampled answers.
        answered: called after each question.
        records: the records of all questions, by player and by the hash of the question.
        section: what the records of new answers name as theirs.
    """

    store: AnswerStore
    reward: RewardClient
    reward_version: str
    temperature: float
    seed: int
    concurrency: int
    answered: Callable[[], None] = field(default=lambda: None)
    budget: Budget = field(default_factory=Budget)
    records: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    section: str = ""

    async def positions(
        self, player: Player, positions: Sequence[Position], variant: Variant
    ) -> list[Answers]:
        """The judged answers in the order of `positions`.

        Raises:
            NotFound: the player's model is no longer served.
            InvalidInput: the player or the reward service refuses a position.
            PeerFault: the player or the reward service did not answer after several attempts.
            WireError: a verdict has no finite reward or regret.
        """

        async def ask_position(position: Position) -> Answers:
            question = {
                "position": [position.id, position.fen, position.task, position.move, *position.last_moves],
                "variant": [variant.style, variant.samples, variant.ranks, *filter(None, [variant.begin])],
                "temperature": self.temperature,
                "seed": self.seed,
                "reward_version": self.reward_version,
                **({"remark": variant.remark(position)} if variant.remark else {}),
            }

            async def ask() -> dict[str, Any]:
                fen, answers = await self._answers(player, position, variant)
                return {
                    "variant": variant.name,
                    "fen": fen,
                    "answers": [asdict(answer) for answer in answers],
                }

            record = await self.recall(player, position.id, question, ask)
            greedy, *samples = map(answer_from_json, record["answers"])
            return Answers(position, record["fen"], greedy, tuple(samples))

        return await self.each(ask_position, positions)

    async def recall(
        self,
        player: Player,
        name: str,
        question: Mapping[str, Any],
        ask: Callable[[], Awaitable[Mapping[str, Any]]],
    ) -> dict[str, Any]:
        """The player's record of a question from the store, or what `ask` returns, which is then added."""
        key = key_of({"player": dict(player.describe()), "question": question})
        record = self.store.get(key)
        if record is None:
            self.budget.check(self.store)
            started = time.monotonic()
            terms = {term: question[term] for term in TERMS if term in question}
            record = {
                "player": player.name,
                "question": name,
                **terms,
                "section": self.section,
                **await ask(),
            }
            record = self.store.add(key, {**record, "seconds": round(time.monotonic() - started, 3)})
        self.records.setdefault(player.name, {})[key_of(question)] = record
        return record

    async def continues(self, player: Player) -> bool:
        """Whether the player can continue the beginning of an answer. Of models, only those on vLLM can, and
        those that answer in a dialogue cannot. The store keeps what a server said, because the server may be
        gone later."""
        if not isinstance(player, ModelPlayer):
            return True
        if isinstance(player, ToolsPlayer):
            return False

        async def ask() -> dict[str, Any]:
            return {"vllm": await player.client.tells_tokens()}

        return bool((await self.recall(player, "server", {"server": "vllm"}, ask))["vllm"])

    async def each(self, work: Callable[[Item], Awaitable[Result]], items: Sequence[Item]) -> list[Result]:
        """Calls `work` with each item, `concurrency` at a time. Returns the results in the order of `items`.
        Raises the first error."""
        slots = asyncio.Semaphore(self.concurrency)

        async def limited(item: Item) -> Result:
            async with slots:
                result = await work(item)
            self.answered()
            return result

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(limited(item)) for item in items]
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from faults
        return [task.result() for task in tasks]

    async def _answers(
        self, player: Player, position: Position, variant: Variant
    ) -> tuple[str, list[PlayerAnswer]]:
        seed = seed_of(position, seed=self.seed)
        if variant.style is None or not isinstance(player, ModelPlayer):
            board = chess.Board(position.fen)
            replies = [await player.play(board.copy(), seed=seed + i) for i in range(variant.samples + 1)]
            texts = [_Text(f"\\boxed{{{reply.move}}}") for reply in replies]
            return position.fen, await self._judge(position, position.fen, texts, variant)
        prompt = prompt_of(position, variant, style=variant.style)
        beginning = (Message("assistant", variant.begin),) if variant.begin else ()
        request = replace(prompt, messages=(*prompt.messages, *beginning))
        completions = await player.at(0.0).ask(request, count=1, seed=seed)
        if variant.samples:
            completions += await player.at(self.temperature).ask(request, count=variant.samples, seed=seed)
        texts = [
            _Text(
                variant.begin + c.text,
                len(c.token_ids),
                c.truncated,
                calls=c.calls if isinstance(c, ToolAnswer) else None,
            )
            for c in completions
        ]
        return prompt.fen, await self._judge(position, prompt.fen, texts, variant)

    async def _judge(
        self, position: Position, fen: str, texts: Sequence[_Text], variant: Variant
    ) -> list[PlayerAnswer]:
        """The answers with their verdicts, all from one request, so that they share the searches."""
        board = chess.Board(fen)
        task = task_of(position, style=variant.style) if variant.style else ""
        candidates = [candidates_of(text.text, board) for text in texts]
        legal = {move.uci() for move in board.legal_moves} if variant.ranks else set()
        ranked = [move for move in distinct(candidates[0]) if move in legal]
        if task in (STATE_TASK, GAME_TASK):
            move = position.move if task == STATE_TASK else ""
            move_items = [ScoreItem(fen, t.text, task=task, truncated=t.truncated, move=move) for t in texts]
        else:
            move_items = [ScoreItem(fen, _move_in(t.text), truncated=t.truncated) for t in texts]
        lines = texts if task == POLICY_TASK else ()
        line_items = [ScoreItem(fen, t.text, task=task, truncated=t.truncated) for t in lines]
        items = [*move_items, *line_items, *(ScoreItem(fen, f"\\boxed{{{move}}}") for move in ranked)]
        verdicts = iter(
            [
                _require_finite(verdict, item)
                for verdict, item in zip(await self.reward.score(items), items, strict=True)
            ]
        )
        move_verdicts = list(islice(verdicts, len(move_items)))
        line_verdicts = list(islice(verdicts, len(line_items)))
        wins = {move: verdict.win_after or 0.0 for move, verdict in zip(ranked, verdicts, strict=True)}
        return [
            PlayerAnswer(
                text=text.text,
                tokens=text.tokens,
                verdict=move_verdicts[i],
                line=line_verdicts[i] if line_verdicts else None,
                candidates=tuple(candidates[i]),
                wins=wins if i == 0 else {},
                calls=text.calls,
            )
            for i, text in enumerate(texts)
        ]


async def reward_version_of(reward: RewardClient) -> str:
    """The version of the reward service, asked by scoring one move."""
    [verdict] = await reward.score([ScoreItem(chess.STARTING_FEN, "\\boxed{e2e4}")])
    return verdict.reward_version


def seed_of(position: Position, *, seed: int) -> int:
    """The seed of the position's first sample. It depends only on the position and `seed`. It has 30 bits, so
    that the seeds of the further samples, which count up from it, fit into 31."""
    digest = hashlib.sha256(f"{seed}:{position.id}:{position.fen}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 2


def _move_in(text: str) -> str:
    """The text whose box is judged: that of the best move of a `P:` line, else the text itself."""
    line = read_policy_answer(text)
    return f"\\boxed{{{line.best}}}" if line else text


def _require_finite(verdict: Verdict, item: ScoreItem) -> Verdict:
    """Returns `verdict`. Raises `WireError` if its reward, or the regret of its move, is not finite, which
    would spoil every mean."""
    judges_move = verdict.outcome is Outcome.LEGAL and item.task != STATE_TASK
    judged = (verdict.reward, verdict.regret if judges_move else 0.0)
    if any(value is None or not math.isfinite(value) for value in judged):
        raise WireError(f"verdict on {item.fen!r} without a finite reward and regret: {verdict!r}")
    return verdict
