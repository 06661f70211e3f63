"""Models that may ask before they answer: by the protocol of LLM Chess, or with the tools of episodes.

In LLM Chess, a model sees the board and the legal moves only if it asks for them. The wording, the actions
and the limits are those of maxim-saplin/llm_chess (`llm_chess.py`, `custom_agents.py`, 2025). Each turn of a
game is a new dialogue.
"""

import asyncio
import random
import re
import time
from dataclasses import dataclass, replace

import chess

from arena.players.model import ModelPlayer
from rookery.answers import after_reasoning
from rookery.engines.player import Reply
from rookery.episodes import tool_turns
from rookery.errors import ContextExceeded
from rookery.trace import Completion, Message, Outcome, Prompt

MOST_TURNS, MOST_FAILURES = 10, 3
"""A dialogue that has no move after so many answers, or so many wrong ones, loses the game."""

_TASK = """\
You are a professional chess player and you play as {colour}. Now is your turn to make a move. Before \
making a move you can pick one of the following actions:
- 'get_current_board' to get the schema and current status of the board
- 'get_legal_moves' to get a UCI formatted list of available moves
- 'make_move <UCI formatted move>' when you are ready to complete your turn (e.g., 'make_move e2e4')"""
_INVALID = (
    "Invalid action. Pick one, reply exactly with the name and space delimitted argument: "
    "get_current_board, get_legal_moves, make_move <UCI formatted move>"
)
_MOVE = re.compile(r"make_move ([a-z0-9]{4,5})")


@dataclass(frozen=True)
class DialoguePlayer(ModelPlayer):
    """Plays by dialogues. Questions about positions are asked without one."""

    dialogue: str = "llm-chess"

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        """See `ModelPlayer.play`. The text is that of the last answer, the tokens are those of all. When a
        dialogue no longer fits into the model's context, it ends without a move."""
        started, tokens, failed = time.monotonic(), 0, list[Outcome]()
        task = _TASK.format(colour="white" if board.turn else "black")
        messages = [Message("user", task)]
        text, move = "", None
        for turn in range(MOST_TURNS):
            prompt = Prompt("dialogue", tuple(messages), board.fen())
            try:
                (completion,) = await self.complete(prompt, count=1, seed=seed + turn)
            except ContextExceeded:
                if turn == 0:
                    raise
                break
            text, tokens = completion.text, tokens + len(completion.token_ids)
            answer, move, outcome = _answered(after_reasoning(text).lower(), board)
            if outcome:
                failed.append(outcome)
            if move or len(failed) == MOST_FAILURES:
                break
            messages += [Message("assistant", text), Message("user", answer)]
        outcomes = [*failed, Outcome.LEGAL] if move else failed
        if not move and len(failed) < MOST_FAILURES:
            outcomes = [*failed, Outcome.TRUNCATED]
        seconds = time.monotonic() - started
        return Reply(move, outcomes[-1], text, tokens, seconds=seconds, failed=tuple(outcomes[:-1]))


def _answered(action: str, board: chess.Board) -> tuple[str, chess.Move | None, Outcome | None]:
    """The reply to an action; the move, or what is wrong with it."""
    if "get_current_board" in action:
        return board.unicode(), None, None
    if "get_legal_moves" in action:
        return ",".join(map(chess.Move.uci, board.legal_moves)), None, None
    if (match := _MOVE.search(action)) is None:
        return _INVALID, None, Outcome.UNPARSABLE
    try:
        if move := board.parse_uci(match[1]):
            return "", move, None
        raise ValueError(f"illegal uci: {match[1]!r} in {board.fen()}")  # python-chess reads a null move
    except ValueError as error:
        return f"Failed to make move: {error}", None, Outcome.ILLEGAL


@dataclass(frozen=True, slots=True)
class ToolAnswer(Completion):
    """The last completion of a dialogue, with the tokens of all, after so many calls."""

    calls: int = 0


@dataclass(frozen=True)
class ToolsPlayer(ModelPlayer):
    """Answers questions about positions after calls of tools in tags, as in the episode `tools`, but not of
    the engine. The answer is the last of at most `tools` turns."""

    tools: int = 4

    async def ask(self, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        """See `ModelPlayer.ask`."""
        return tuple(await asyncio.gather(*(self._answer(prompt, seed=seed + i) for i in range(count))))

    async def _answer(self, prompt: Prompt, *, seed: int) -> ToolAnswer:
        """The answer; empty and cut if the dialogue outgrows the model's context."""
        turns = 0

        async def complete(asked: Prompt) -> Completion:
            nonlocal turns
            turns += 1
            if turns == 1:
                (first,) = await self.complete(asked, count=1, seed=seed)
                return first
            no_room = Completion("", (), (), "length", seed)
            try:
                (completion,) = await self.complete(asked, count=1, seed=_turn_seed(seed, turns))
            except ContextExceeded:
                return no_room
            # The server shortens an answer to what the context has left.
            shortened = completion.truncated and 0 < len(completion.token_ids) < self.sampling.max_tokens
            return replace(no_room, token_ids=completion.token_ids) if shortened else completion

        completions = [turn.completion for turn in await tool_turns(prompt, complete, turns=self.tools)]
        last = completions[-1]
        return ToolAnswer(
            text=last.text,
            token_ids=tuple(token for completion in completions for token in completion.token_ids),
            logprobs=(),
            finish_reason=last.finish_reason,
            seed=seed,
            calls=len(completions) - 1,
        )


def _turn_seed(seed: int, turn: int) -> int:
    """Of 31 bits, unlike those of other samples, which count up."""
    return random.Random(f"{seed}:{turn}").getrandbits(31)
