"""Chooses puzzles from a table, either with equal probability or balanced by theme.

The puzzles with the smallest ranks are taken. A rank depends only on the seed and a puzzle's first position.
So the order of the table does not matter, and of puzzles with the same question only one is taken. Memory
use is about three times the puzzles taken, however long the table is.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from rookery.puzzles import Puzzle
from services.data.positions.distinct import position_key
from services.data.positions.recipe import splitmix64

NumberedPuzzle = tuple[int, Puzzle]


class _SmallestRanks:
    """The puzzles with the smallest ranks, at most `size`; of equal ranks, the first added."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._heap: list[int] = []  # negated, so that the largest rank comes first
        self._held: dict[int, NumberedPuzzle] = {}

    def add(self, rank: int, puzzle: NumberedPuzzle) -> None:
        if rank in self._held or (len(self._heap) >= self.size and rank > -self._heap[0]):
            return
        heappush(self._heap, -rank)
        self._held[rank] = puzzle
        self.shrink(self.size)

    def shrink(self, size: int) -> None:
        self.size = size
        while len(self._heap) > size:
            del self._held[-heappop(self._heap)]

    def ranked(self) -> list[tuple[int, NumberedPuzzle]]:
        return sorted(self._held.items())


def select_puzzles(
    puzzles: Iterable[Puzzle], *, count: int, seed: int = 0, themes: Iterable[str] | None = None
) -> list[Puzzle]:
    """Chooses `count` of the puzzles, or all if there are fewer, and returns them in their order.

    With `themes`, each of these gets as equal a number of puzzles as possible. An empty `themes` means all
    themes.
    """
    every = _SmallestRanks(count)
    by_theme = None if themes is None else _ByTheme(count, frozenset(themes))
    for number, puzzle in enumerate(puzzles):
        rank = splitmix64(seed, position_key(puzzle.fen))
        every.add(rank, (number, puzzle))
        if by_theme is not None:
            by_theme.add(rank, (number, puzzle))
    chosen = dict(by_theme.even(count)) if by_theme is not None else {}
    for rank, numbered in every.ranked():  # if the themes have too few
        if len(chosen) == count:
            break
        chosen[rank] = numbered
    return [puzzle for _, puzzle in sorted(chosen.values(), key=lambda numbered: numbered[0])]


class _ByTheme:
    """The smallest ranks of each theme. A theme's share shrinks with every new theme."""

    def __init__(self, count: int, themes: frozenset[str]) -> None:
        self._count = count
        self._only = themes
        self._of: dict[str, _SmallestRanks] = {}

    def add(self, rank: int, numbered: NumberedPuzzle) -> None:
        for theme in self._themes(numbered[1]):
            if theme not in self._of:
                self._of[theme] = _SmallestRanks(0)
                share = -(-self._count // len(self._of))
                for smallest in self._of.values():
                    smallest.shrink(share)
            self._of[theme].add(rank, numbered)

    def even(self, count: int) -> Iterator[tuple[int, NumberedPuzzle]]:
        """Yields up to `count` puzzles with their ranks, each from the theme that has the fewest so far."""
        waiting = {theme: iter(smallest.ranked()) for theme, smallest in sorted(self._of.items())}
        taken: set[int] = set()
        taken_of: Counter[str] = Counter()
        while waiting and len(taken) < count:
            theme = min(waiting, key=lambda theme: taken_of[theme])
            rank, numbered = next(waiting[theme], (-1, None))
            if numbered is None:
                del waiting[theme]
            elif rank not in taken:
                taken.add(rank)
                taken_of.update(self._themes(numbered[1]))
                yield rank, numbered

    def _themes(self, puzzle: Puzzle) -> list[str]:
        return [theme for theme in puzzle.themes if not self._only or theme in self._only]
