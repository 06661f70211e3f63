"""The options of the UCI engine."""

from dataclasses import dataclass, replace

from rookery.errors import InvalidInput

OWN = "own"
"""The value of `Temperature` that leaves the temperature to the player's spec."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options that have an effect. `temperature` None: as the player's spec says."""

    temperature: float | None = None
    retries: int = 3
    overhead_ms: int = 100

    def set(self, name: str, value: str) -> "Options":
        """The options after `setoption`.

        Raises:
            InvalidInput: there is no such option, or the value is wrong. The options stay as they are.
        """
        match name.lower():
            case "temperature":
                own = value.lower() in (OWN, "", "<empty>")
                return replace(self, temperature=None if own else _number(name, value, 0, 2))
            case "retries":
                return replace(self, retries=int(_number(name, value, 0, 10)))
            case "move overhead":
                return replace(self, overhead_ms=int(_number(name, value, 0, 5000)))
            case "uci_chess960" if value.lower() == "true":
                raise InvalidInput("Chess960 is not supported: no player of Rookery knows its castling")
            case other if other in _ACCEPTED:
                return self
        raise InvalidInput(f"no option {name!r}")


_ACCEPTED = frozenset({"hash", "threads", "syzygypath", "uci_showwdl", "uci_chess960", "ponder"})
"""Set by many GUIs without asking. They have no effect on a player."""

# `UCI_Chess960` and `Ponder` are not declared, so that nobody uses them.
DECLARATIONS = (
    "option name Hash type spin default 16 min 1 max 33554432",
    "option name Threads type spin default 1 min 1 max 1024",
    f"option name Move Overhead type spin default {Options().overhead_ms} min 0 max 5000",
    "option name SyzygyPath type string default <empty>",
    "option name UCI_ShowWDL type check default false",
    f"option name Temperature type string default {OWN}",
    f"option name Retries type spin default {Options().retries} min 0 max 10",
)


def _number(name: str, value: str, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        raise InvalidInput(f"{name} {value!r} is no number from {least:g} to {most:g}")
    return number
