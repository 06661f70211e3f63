"""The result of a match or a tournament, as a document (match.json) and as text for the terminal."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.table import Table

from arena.matches.game import MatchGame
from arena.matches.tournament import Unplayed
from arena.players.player import Player
from arena.strength.fit import Ratings
from arena.strength.pentanomial import Elo, Pentanomial
from arena.strength.sprt import Sprt
from rookery.games import ILLEGAL_MOVE, Rules
from rookery.intervals import estimate_text
from rookery.trace import Outcome

VERSION = 1
"""Incremented with every incompatible change of match.json."""


@dataclass(frozen=True, slots=True)
class PlayerSummary:
    """What one player did in all its games.

    `first_tries` counts how the first answer of each of its turns was read: `legal`, `illegal` and so on,
    whatever the rule for illegal moves. `replaced` counts its moves that were random instead.
    """

    name: str
    version: Mapping[str, object]
    wins: int
    draws: int
    losses: int
    first_tries: Mapping[str, int]
    replaced: int
    forfeits: int
    tokens: int
    seconds: float

    @property
    def legal_rate(self) -> float | None:
        """Share of turns whose first answer was a legal move."""
        turns = sum(self.first_tries.values())
        return self.first_tries.get(Outcome.LEGAL, 0) / turns if turns else None


@dataclass(frozen=True, slots=True)
class Encounter:
    """The games of `player` against `opponent`, from the player's point of view. `strict_elo` is the
    difference if the first illegal move of each game had lost it."""

    player: str
    opponent: str
    wins: int
    draws: int
    losses: int
    pairs: Pentanomial
    elo: Elo
    normalised_elo: Elo
    strict_elo: Elo
    superiority: float


@dataclass(frozen=True, slots=True)
class SprtResult:
    """A sequential test. `decision` is None if it ran out of games before it was clear."""

    test: Sprt
    llr: float
    bounds: tuple[float, float]
    decision: str | None


@dataclass(frozen=True, slots=True)
class MatchReport:
    """Everything about a match or a tournament but the games themselves."""

    version: int
    schedule: str
    rules: Rules
    referee: Mapping[str, object] | None
    openings: str
    seed: int
    players: tuple[PlayerSummary, ...]
    encounters: tuple[Encounter, ...]
    ratings: Ratings | None
    sprt: SprtResult | None
    llm_chess: Mapping[str, float] | None
    terminations: Mapping[str, int]
    unplayed: tuple[Unplayed, ...]
    seconds: float


def summary(name: str, games: Iterable[MatchGame], player: Player | None = None) -> PlayerSummary:
    """What the player `name` did in `games`."""
    player_games = [game for game in games if name in (game.white, game.black)]
    scores = Counter(score_of(name, game) for game in player_games)
    turns = [turn for game in player_games for turn in game.turns_of(name)]
    failed = [turn for turn in turns if turn.outcomes[-1] != Outcome.LEGAL]
    return PlayerSummary(
        name=name,
        version=dict(player.describe()) if player else {},
        wins=scores[1.0],
        draws=scores[0.5],
        losses=scores[0.0],
        first_tries=dict(Counter(turn.outcomes[0] for turn in turns)),
        replaced=sum(turn.move is not None for turn in failed),
        forfeits=sum(turn.move is None for turn in failed),
        tokens=sum(turn.tokens for turn in turns),
        seconds=sum(turn.seconds for turn in turns),
    )


def encounters(
    games: Sequence[MatchGame], names: Sequence[str], *, paired: bool = True
) -> tuple[Encounter, ...]:
    """Every pairing of `games`, each from the point of view of the player that comes first in `names`. Unless
    `paired`, every game has the same colours, and counts by itself."""
    pairings: dict[tuple[str, str], list[MatchGame]] = {}
    for game in games:
        player, opponent = sorted((game.white, game.black), key=names.index)
        pairings.setdefault((player, opponent), []).append(game)
    return tuple(
        _encounter(player, opponent, encounter_games, paired=paired)
        for (player, opponent), encounter_games in pairings.items()
    )


def _encounter(player: str, opponent: str, games: Sequence[MatchGame], *, paired: bool) -> Encounter:
    scores = Counter(score_of(player, game) for game in games)
    played, strict = (
        Pentanomial.of(pair_scores(player, side) if paired else [score_of(player, game) for game in side])
        for side in (games, [forfeited(game) for game in games])
    )
    pairs = played if paired else Pentanomial.of(())
    return Encounter(
        player=player,
        opponent=opponent,
        wins=scores[1.0],
        draws=scores[0.5],
        losses=scores[0.0],
        pairs=pairs,
        elo=played.elo,
        normalised_elo=pairs.normalised_elo,
        strict_elo=strict.elo,
        superiority=played.superiority,
    )


def forfeited(game: MatchGame) -> MatchGame:
    """The game as it would have ended if its first illegal move had lost."""
    for number, turn in enumerate(game.turns):
        if not turn.legal_at_once:
            white = game.opening.board().turn == (number % 2 == 0)
            result = "0-1" if white else "1-0"
            return replace(game, result=result, termination=ILLEGAL_MOVE, turns=game.turns[: number + 1])
    return game


def score_of(name: str, game: MatchGame) -> float:
    """The score of the player `name` in `game`: 1, 1/2 or 0."""
    return game.white_score if game.white == name else 1 - game.white_score


def pair_scores(name: str, games: Iterable[MatchGame]) -> list[float]:
    """The mean scores of `name` in the pairs of which both games are there."""
    pairs: dict[int, list[float]] = {}
    for game in games:
        pairs.setdefault(game.pair, []).append(score_of(name, game))
    return [sum(scores) / 2 for scores in pairs.values() if len(scores) == 2]


def elo_text(elo: Elo) -> str:
    """The value with its interval, or the bound.

    >>> elo_text(Elo(25.04, 6.4, 45.3)), elo_text(Elo(None, 484.0, None)), elo_text(Elo(30.0, None, 90.0))
    ('+25 [+6, +45]', 'at least +484', '+30 (at most +90)')
    """
    return estimate_text(elo.value, (elo.low, elo.high), "+.0f")


def encounter_text(encounter: Encounter) -> str:
    """The games, the Elo difference and the pairs, in the convention of engine developers."""
    e = encounter
    games = e.wins + e.draws + e.losses
    share = (e.wins + e.draws / 2) / games
    line = f"{e.player} - {e.opponent}: {games} games, +{e.wins} ={e.draws} -{e.losses}, {share:.1%}"
    if e.elo == Elo(None, None, None):
        return line
    strict = "" if e.strict_elo == e.elo else f", {elo_text(e.strict_elo)} if illegal moves had lost"
    normalised = f", normalised {elo_text(e.normalised_elo)}" if e.pairs.pairs else ""
    lines = [line, f"Elo {elo_text(e.elo)}{strict}{normalised}, 95% intervals; likelihood of superiority "
                   f"{e.superiority:.1%}"]  # fmt: skip
    if e.pairs.pairs:
        lines.append(f"pairs with 0, 1/2, 1, 1 1/2, 2 points: {', '.join(map(str, e.pairs.counts))}")
    return "\n".join(lines)


def sprt_text(result: SprtResult) -> str:
    """One line: the test, the ratio between its bounds, and what was decided."""
    test, (low, high) = result.test, result.bounds
    verdicts = {
        "H1": f"accepted: at least {test.elo1:+g} Elo",
        "H0": f"rejected: at most {test.elo0:+g} Elo",
        None: "undecided, more games are needed",
    }
    return (
        f"SPRT [{test.elo0:g}, {test.elo1:g}] {test.model}, alpha {test.alpha:g}, beta {test.beta:g}: "
        f"LLR {result.llr:.2f} ({low:.2f}, {high:.2f}), {verdicts[result.decision]}"
    )


def rating_table(ratings: Ratings, players: Sequence[PlayerSummary]) -> Table:
    """The terminal's table of all players, the strongest first."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("player", overflow="fold")
    for head in ("Elo, 95%", "games", "score", "legal at once"):
        table.add_column(head, justify="right", no_wrap=True)
    legal = {player.name: player.legal_rate for player in players}
    for rating in ratings.players:
        rate = legal[rating.name]
        table.add_row(
            rating.name,
            f"{rating.elo.value:+.0f} (held)" if rating.anchor else elo_text(rating.elo),
            str(rating.games),
            f"{rating.score:.1%}",
            "-" if rate is None else f"{rate:.1%}",
        )
    return table
