"""Finds the games of a text that have the usual layout, with array operations on all of its lines at once.

A game with the usual layout is an `Event` tag and other tags, blank lines, its moves, blank lines, and then
the `Event` tag of the next game. No line of the moves begins like a tag, an escape or a byte order mark, and
only the last ends in a result or a space. All lines end in LF, or all in CRLF. For such a game the result is
the same as that of the line-by-line reader, `services.data.pgn.splitter`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.data.pgn.rawgame import MAX_GAME_BYTES

EVENT = b'[Event "'
"""The start of the tag that games usually begin with."""

_LF, _CR, _BRACKET, _ESCAPE, _MARK = b"\n\r[%\xef"
_EVENT = np.uint64(int.from_bytes(EVENT, "little"))
_NAME, _NAME_BITS = np.uint64((1 << 48) - 1), np.uint64(48)  # of "[Event"
_BYTE, _SPACE = np.uint64(255), np.uint64(32)
_SPACES = b" \t\n\v\f\r"
# Indexed by the last two bytes of a line of moves: results and spaces, where the splitter may end a game.
_RESULTS = [int.from_bytes(end, "little") for end in (b"-0", b"-1", b"/2")]
_ENDS = np.isin(np.arange(1 << 16), _RESULTS) | np.isin(np.arange(1 << 16) >> 8, list(b"*" + _SPACES))
# Kinds of line ends; LF is 0.
_CRLF, _LONE = 1, 2


@dataclass(frozen=True, slots=True)
class Games:
    """The offsets at which games begin and end, in order."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def run(self, at: int) -> tuple[list[int], list[int]]:
        """Starts and ends of the gapless run of games that begins at `at`; empty if no game begins there."""
        first = int(np.searchsorted(self.starts, at))
        if first == len(self.starts) or self.starts[first] != at:
            return [], []
        gaps = np.flatnonzero(self.starts[first + 1 :] != self.ends[first:-1])
        after = first + 1 + int(gaps[0]) if len(gaps) else len(self.starts)
        return self.starts[first:after].tolist(), self.ends[first:after].tolist()


def games_like_others(text: bytes, at: int) -> Games:
    """The games with the usual layout that begin and end in the text from `at` on."""
    data = np.frombuffer(text, np.uint8)
    starts, stops, endings = _lines(data, at, has_cr=b"\r" in text)
    first = data.take(starts, mode="clip")
    is_tag, is_blank = first == _BRACKET, np.empty(len(starts), bool)
    np.equal(starts[:-1], stops, out=is_blank[:-1])
    is_blank[-1] = True  # the last line is incomplete: all that matters is whether it begins a game
    is_moves = ~(is_tag | is_blank)
    is_event, is_odd = _events(text, starts, is_tag)
    is_odd |= (first == _ESCAPE) | (first == _MARK)
    odd, tag, blank, moves = is_odd[:-1], is_tag[:-1], is_blank[:-1], is_moves[:-1]
    # Odd: moves right after a tag, a tag after anything else, a game after anything but a blank line.
    odd |= tag & is_moves[1:]
    odd |= ~tag & is_tag[1:] & ~is_event[1:]
    odd |= ~blank & is_event[1:]
    if endings is not None:
        odd |= endings == _LONE
        odd[:-1] |= (endings[:-1] != endings[1:]) & ~is_event[1:-1]
    # Odd: moves after a line that ends in a result or a space.
    goes_on = np.flatnonzero(moves & is_moves[1:])
    if len(goes_on):
        odd[goes_on] |= _ENDS[_words(text, "<u2")[stops[goes_on] - 2]]
    # In a game with the usual layout, moves begin exactly once and no line is odd.
    marks = 2 * is_odd.view(np.uint8)
    marks[:-1] += blank & is_moves[1:]
    events = np.flatnonzero(is_event)
    if not len(events):
        return Games(events, events)
    edges = starts[events]
    alike = np.add.reduceat(marks, events, dtype=np.int64)[:-1] == 1
    alike &= np.diff(edges) <= MAX_GAME_BYTES
    return Games(edges[:-1][alike], edges[1:][alike])


def _lines(
    data: NDArray[np.uint8], at: int, *, has_cr: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8] | None]:
    """Where lines begin; for all but the last, where their text ends and how (None if all end in LF)."""
    is_end = data[at:] == _LF
    if has_cr:
        is_end[:-1] |= (data[at:-1] == _CR) & ~is_end[1:]
    ends = np.flatnonzero(is_end)
    if at:
        ends += at
    starts = np.empty(len(ends) + 1, np.int64)
    starts[0] = at
    np.add(ends, 1, out=starts[1:])
    if not has_cr:
        return starts, ends, None
    endings = ((data[ends - 1] == _CR) & (ends > starts[:-1])).astype(np.uint8)  # 1 is _CRLF
    endings[data[ends] == _CR] = _LONE
    return starts, ends - (endings == _CRLF), endings


def _events(
    text: bytes, starts: NDArray[np.int64], is_tag: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which lines begin a game, and which only look like it, such as `[Event  "two spaces"]`."""
    is_event, is_odd = np.zeros(len(starts), bool), np.zeros(len(starts), bool)
    second = np.frombuffer(text, np.uint8).take(starts + 1, mode="clip")
    tags = np.flatnonzero(is_tag & (second == EVENT[1]))
    words = _words(text, "<u8")[np.minimum(starts[tags], len(text) - len(EVENT))]
    begins = words == _EVENT
    is_event[tags[begins]] = True
    is_odd[tags[(words & _NAME == _EVENT & _NAME) & (words >> _NAME_BITS & _BYTE <= _SPACE) & ~begins]] = True
    return is_event, is_odd


def _words(text: bytes, kind: str) -> NDArray[Any]:
    """For each offset, the bytes from there on as one number of type `kind`. Nothing is copied."""
    size = np.dtype(kind).itemsize
    return np.ndarray(max(0, len(text) - size + 1), kind, text, strides=(1,))
