"""Plays one game: asks the players in turn, applies the rule for illegal moves, and says how the game ended.

Under every rule for illegal moves, the game records whether the first try of each turn was legal. So legality
and quality of play can be measured separately.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import chess
import chess.engine

from arena.players.player import Player
from rookery.engines.player import Reply
from rookery.errors import ContextExceeded, Unavailable
from rookery.games import SCORES, GameState, Rules
from rookery.openings import Opening
from rookery.retries import retry
from rookery.trace import Evaluation, Outcome

FAULT_TRIES = 3
"""How often a move is asked for before the game is given up because its player does not answer."""


@dataclass(frozen=True, slots=True)
class MatchTurn:
    """One player's turn.

    Attributes:
        move: the move played, in UCI; None if the player forfeited.
        outcomes: how each try was read. The move is a random replacement if the last one is not `legal`.
        text: the answer of the last try.
        tokens, seconds: of all tries together.
        cp, mate: the referee's evaluation for White, or else the player's own. At most one is set.
    """

    move: str | None
    outcomes: tuple[str, ...]
    text: str = ""
    tokens: int = 0
    seconds: float = 0.0
    cp: int | None = None
    mate: int | None = None

    @property
    def legal_at_once(self) -> bool:
        """Whether the first try was a legal move."""
        return self.outcomes[0] == Outcome.LEGAL


@dataclass(frozen=True)
class Fixture:
    """A game to be played. The two games of one `pair` have the same opening and swapped colours."""

    pair: int
    white: str
    black: str
    opening: Opening
    key: str
    """The SHA-256, shortened, of everything that decides the game: rules, players, opening, pair, seed."""

    @cached_property
    def seed(self) -> int:
        return int(self.key[:8], 16)


@dataclass(frozen=True, slots=True)
class MatchGame:
    """A finished game."""

    key: str
    pair: int
    white: str
    black: str
    opening: Opening
    result: str
    """`1-0`, `0-1` or `1/2-1/2`."""
    termination: str
    turns: tuple[MatchTurn, ...] = field(repr=False)

    @property
    def white_score(self) -> float:
        """1, 1/2 or 0."""
        return SCORES[self.result]

    def turns_of(self, name: str) -> tuple[MatchTurn, ...]:
        whites_turn = self.opening.board().turn
        first = self.white if whites_turn else self.black
        return self.turns[0::2] if first == name else self.turns[1::2]


Play: TypeAlias = Callable[[Fixture], Awaitable[MatchGame]]
"""Plays a game between players and by rules that it knows: `play` here, or a worker elsewhere."""


async def play(
    fixture: Fixture,
    players: Mapping[str, Player],
    rules: Rules,
    *,
    referee: Player | None = None,
    backoff_s: float = 1.0,
) -> MatchGame:
    """Plays the game to its end. The result depends only on the fixture, the players and the rules. Raises
    `Unavailable` if a player did not answer in `FAULT_TRIES` attempts; the game then has no result. Raises
    `ContextExceeded` if the first prompt of a player does not fit its model; a later one is no legal move."""
    turns: list[MatchTurn] = []
    game = GameState(fixture.opening.board(), rules)
    sides = {chess.WHITE: players[fixture.white], chess.BLACK: players[fixture.black]}
    while (end := game.end) is None:
        player, first = sides[game.board.turn], len(turns) < 2
        turn = await _turn(game, player, first=first, seed=fixture.seed, backoff_s=backoff_s)
        if referee is not None and turn.move is not None and not game.board.is_game_over():
            judged = await _ask(referee, game.board, seed=fixture.seed, backoff_s=backoff_s)
            cp, mate = _white_view(judged.score)  # of a short search, an engine may tell no more than a bound
            turn = replace(turn, cp=cp, mate=mate)
            game.scores.append(Evaluation(cp, mate))
        turns.append(turn)
    result, termination = end
    return MatchGame(
        key=fixture.key,
        pair=fixture.pair,
        white=fixture.white,
        black=fixture.black,
        opening=fixture.opening,
        result=result,
        termination=termination,
        turns=tuple(turns),
    )


async def _turn(game: GameState, player: Player, *, first: bool, seed: int, backoff_s: float) -> MatchTurn:
    """The player's turn, whose move is made."""
    board, outcomes = game.board, list[str]()
    tokens, seconds = 0, 0.0
    move = None
    while move is None and len(outcomes) < game.rules.tries:
        try_seed = derived_seed(seed, board.ply(), len(outcomes))
        try:
            reply = await _ask(player, board, seed=try_seed, backoff_s=backoff_s)
        except ContextExceeded:
            if first:  # not even the shortest prompt fits: the player is set up wrongly
                raise
            reply = Reply(None, Outcome.TRUNCATED)
        outcomes += map(str, (*reply.failed, reply.outcome))
        tokens, seconds, move = tokens + reply.tokens, seconds + reply.seconds, reply.move
    move = game.play(move, seed=derived_seed(seed, board.ply(), -1))
    cp, mate = _white_view(reply.score)
    return MatchTurn(
        move=move.uci() if move else None,
        outcomes=tuple(outcomes),
        text=reply.text,
        tokens=tokens,
        seconds=seconds,
        cp=cp,
        mate=mate,
    )


async def _ask(player: Player, board: chess.Board, *, seed: int, backoff_s: float) -> Reply:
    """The player's reply; a player that does not answer is asked again."""
    pauses_s = [backoff_s * attempt for attempt in range(1, FAULT_TRIES)]
    return await retry(lambda: player.play(board, seed=seed), on=Unavailable, pauses_s=pauses_s)


def derived_seed(*numbers: int) -> int:
    """A seed of 31 bits that depends on all `numbers`."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


def _white_view(score: chess.engine.PovScore | None) -> tuple[int | None, int | None]:
    return (None, None) if score is None else (score.white().score(), score.white().mate())
