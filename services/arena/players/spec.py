"""Makes players from their specifications."""

from rookery.errors import InvalidInput
from services.arena.players.player import Player
from services.arena.players.simple import FirstLegalPlayer, RandomPlayer


def make_player(spec: str) -> Player:
    """The player that `spec` describes.

    Raises:
        InvalidInput: there is no such player.
    """
    if spec == "random":
        return RandomPlayer()
    if spec == "first-legal":
        return FirstLegalPlayer()
    raise InvalidInput(f"no player {spec!r}")
