"""Finds the games of a text that have the usual layout, for all lines at once.

A game of the usual layout is an `Event` tag and other tags, blank lines, its moves, blank lines, and the
`Event` tag of the next. No line of the moves begins like a tag, an escape or a byte order mark, and none but
the last ends in a result or a space. All its lines end in LF, or all in CRLF. It ends where the slow reader,
`rookery.pgn.splitter`, would end it, unless a line of moves ends in a result and a comment and more moves
follow on the next: for the slow reader, these are another game.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rookery.pgn.rawgame import MAX_GAME_BYTES

EVENT = b'[Event "'
"""The tag that games begin with."""
NEXT = b"\n\n" + EVENT
"""Ends a game of a file with LF, and begins the next."""

_LF, _CR, _BRACKET, _ESCAPE, _MARK = b"\n\r[%\xef"
_EVENT = np.uint64(int.from_bytes(EVENT, "little"))
_NAME, _NAME_BITS = np.uint64((1 << 48) - 1), np.uint64(48)  # of "[Event"
_BYTE, _SPACE = np.uint64(255), np.uint64(32)
_SPACES = b" \t\n\v\f\r"
# By the last two bytes of a line of moves: results and spaces, after which the careful reader may see an end.
_RESULTS = [int.from_bytes(end, "little") for end in (b"-0", b"-1", b"/2")]
_ENDS = np.isin(np.arange(1 << 16), _RESULTS) | np.isin(np.arange(1 << 16) >> 8, list(b"*" + _SPACES))
# How a line ends.
_CRLF, _LONE = 1, 2


@dataclass(frozen=True, slots=True)
class Games:
    """Where games begin and end, in order."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def run(self, at: int) -> list[int]:
        """The ends of the games from `at` on that follow each other without a gap."""
        first = int(np.searchsorted(self.starts, at))
        if first == len(self.starts) or self.starts[first] != at:
            return []
        gaps = np.flatnonzero(self.starts[first + 1 :] != self.ends[first:-1])
        after = first + 1 + int(gaps[0]) if len(gaps) else len(self.starts)
        ends: list[int] = self.ends[first:after].tolist()
        return ends


def games_like_others(text: bytes, at: int) -> Games:
    """The games of the usual layout that begin and end in the text from `at` on."""
    data = np.frombuffer(text, np.uint8)
    starts, stops, endings = _line_bounds(data, at, has_cr=b"\r" in text)
    first = data.take(starts, mode="clip")
    is_tag, is_blank = first == _BRACKET, (first == _LF) | (first == _CR)
    is_blank[-1] = True  # the last line is cut off: only whether it begins a game matters
    is_moves = ~(is_tag | is_blank)
    is_event, is_odd = _event_lines(text, starts, is_tag)
    is_odd |= (first == _ESCAPE) | (first == _MARK)
    odd, tag, blank, moves = is_odd[:-1], is_tag[:-1], is_blank[:-1], is_moves[:-1]
    # What may not follow: moves on a tag, a tag on anything else, a game on anything but a blank line.
    odd |= tag & is_moves[1:]
    odd |= ~tag & is_tag[1:] & ~is_event[1:]
    odd |= ~blank & is_event[1:]
    if endings is not None:
        odd |= endings == _LONE
        odd[:-1] |= (endings[:-1] != endings[1:]) & ~is_event[1:-1]
    # Moves on a result or a space.
    continued = np.flatnonzero(moves & is_moves[1:])
    if len(continued):
        odd[continued] |= _ENDS[_words_at(text, "<u2")[stops[continued] - 2]]
    # In a game like others moves begin once, and nothing is odd.
    marks = 2 * is_odd.view(np.uint8)
    marks[:-1] += blank & is_moves[1:]
    events = np.flatnonzero(is_event)
    if not len(events):
        return Games(events, events)
    edges = starts[events]
    alike = np.add.reduceat(marks, events, dtype=np.int64)[:-1] == 1
    alike &= np.diff(edges) <= MAX_GAME_BYTES
    return Games(edges[:-1][alike], edges[1:][alike])


def _line_bounds(
    data: NDArray[np.uint8], at: int, *, has_cr: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8] | None]:
    """Where all lines begin; and of all but the last, where their texts end and by what (None: all by LF)."""
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


def _event_lines(
    text: bytes, starts: NDArray[np.int64], is_tag: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which lines begin a game, and which only look like it, as `[Event  "two spaces"]` does."""
    is_event, is_odd = np.zeros(len(starts), bool), np.zeros(len(starts), bool)
    second = np.frombuffer(text, np.uint8)[1:].take(starts, mode="clip")
    tags = np.flatnonzero(is_tag & (second == EVENT[1]))
    words = _words_at(text, "<u8")[np.minimum(starts[tags], len(text) - len(EVENT))]
    begins = words == _EVENT
    is_event[tags[begins]] = True
    is_odd[tags[(words & _NAME == _EVENT & _NAME) & (words >> _NAME_BITS & _BYTE <= _SPACE) & ~begins]] = True
    return is_event, is_odd


def _words_at(text: bytes, kind: str) -> NDArray[Any]:
    """The number of type `kind` that begins at each byte of the text."""
    size = np.dtype(kind).itemsize
    return np.ndarray(max(0, len(text) - size + 1), kind, text, strides=(1,))
