"""`rookery check`: reads a text about a position, or the comments of a game, and marks what is false."""

import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import chess
from pydantic import Field, model_validator
from pydantic_settings import CliPositionalArg
from rich.text import Text

from commentary import ReadClaim, ReadSentence, Study, TextReading, read
from commentary.concept import CONCEPTS
from rookery.encoding import decode
from rookery.errors import SetupError
from rookery.fen import read_fen
from rookery.masking import printable
from rookery.pgn.reader import read_games
from rookery.settings import Settings
from rookery.terminal import SafeConsole

_STDIN = Path("-")
PLAY = ("choice", "lines")
"""Topics of claims about play, not about one position or one move."""

_CLAIM = ("concept", "start", "end", "words", "true")
"""What `--json` has of a claim."""

_STYLES = {True: "green", False: "bold red underline", None: "yellow"}
_MARKS = {True: "{+%s+}", False: "{-%s-}", None: "{~%s~}"}
_WORDS = {True: "true", False: "false", None: "open"}


class CheckSettings(Settings, env_prefix="CHECK_"):
    """Check every claim about the board that a text makes, and mark it as true or false.

    A line break ends a sentence, except in comments of a PGN. There, each sentence is read in the position
    after the move and in the one before it, and is false only if it is false in both. What is said of play,
    such as "Black has won a pawn", is never false there. Claims about scores need an engine and are not
    judged. Where a game or a side line cannot be read, its later comments are left out, and stderr says so.
    The exit status is 1 if something is false.

    Examples:
      rookery check "White has a passed pawn on d5." --fen "4k3/8/8/3P4/8/8/8/4K3 w - - 0 1"
      rookery check text.txt --fen FEN
      rookery check - --fen FEN < text.txt
      rookery check annotated.pgn
      zstdcat annotated.pgn.zst | rookery check -
      rookery check annotated.pgn --json | jq 'select(.false > 0)'
    """

    text: CliPositionalArg[str | None] = None
    """The text, a file with it, or a PGN file; -: from stdin."""
    fen: str = ""
    """The position that the text is about; a PGN has its own."""
    file: Path | None = None
    """A file with the text, or a PGN file."""
    all: bool = False
    """Of a PGN, also print comments without mistakes."""
    json_: bool = Field(default=False, alias="json")
    """Print one line of JSON for each text."""

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.text is None) == (self.file is None):
            raise ValueError("give TEXT, a PGN file, or --file")
        if self.is_pgn and self.fen:
            raise ValueError(f"a PGN file has its own positions: drop --fen {self.fen!r}")
        if not (self.is_pgn or self.fen):
            raise ValueError("say which position: --fen")
        return self

    @property
    def path(self) -> Path | None:
        """The file, if it is one, or `-` for stdin."""
        return Path(self.text) if self.text is not None and _names_a_file(self.text) else self.file

    @property
    def is_pgn(self) -> bool:
        path = self.path
        return path is not None and (path.suffix.lower() == ".pgn" or (path == _STDIN and not self.fen))


@dataclass(frozen=True, slots=True)
class Checked:
    """A text, its place in its file, and the claims that were read in it."""

    place: str
    fen: str
    text: str
    reading: TextReading

    def count(self) -> Counter[str]:
        """How many sentences, unread ones among them, and true, false and open claims it has."""
        claims = Counter(_WORDS[claim.true] for claim in self.reading.claims)
        counts = {"sentences": len(self.reading.sentences), "unread": len(self.reading.unread)}
        return Counter(counts) + claims

    def json(self) -> str:
        """All of it as one line."""
        counts, reading = self.count(), self.reading
        return json.dumps(
            {
                **{"place": self.place, "fen": self.fen, "text": self.text},
                **{name: counts[name] for name in ("sentences", "unread", "true", "false", "open")},
                "share_read": reading.share_read,
                "claims": [{name: getattr(claim, name) for name in _CLAIM} for claim in reading.claims],
                "unread_sentences": [[sentence.start, sentence.end] for sentence in reading.unread],
            }
        )


def check(settings: CheckSettings) -> int:
    """Prints the text or the comments, marked, and returns the exit status: 1 if something is false. Raises
    `SetupError` if there is no text or position, or the file cannot be read."""
    texts = (
        _comments(_content(settings.path)) if settings.is_pgn and settings.path else _single_text(settings)
    )
    return _print(texts, as_json=settings.json_, all_texts=settings.all or not settings.is_pgn)


def _names_a_file(text: str) -> bool:
    """Whether it is the name of a file, or `-` for stdin, and no text itself."""
    try:
        is_file = Path(text).is_file()
    except OSError:  # too long for a name
        return False
    return text == "-" or is_file or (text.lower().endswith(".pgn") and " " not in text)


def _single_text(settings: CheckSettings) -> Iterator[Checked]:
    path = settings.path
    text = (settings.text or "") if path is None else decode(_content(path))
    if not text.strip():
        raise SetupError("there is no text")
    try:
        fen = read_fen(settings.fen).fen()
        yield Checked("", fen, text, read(fen, text))
    except ValueError as error:
        raise SetupError(str(error)) from error


def _content(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == _STDIN else path.read_bytes()
    except OSError as error:
        raise SetupError(f"cannot read {str(path)!r}: {error.strerror}") from error


# -- comments of games ---------------------------------------------------------------------------


def _comments(data: bytes) -> Iterator[Checked]:
    """What the comments of games say. Faults of games are named on stderr, with what is left out for them."""
    comments: list[tuple[chess.Board, str]] = []

    def add(board: chess.Board, comment: str) -> None:
        comments.append((board.copy(stack=2), comment.strip()))

    number, is_pgn = 0, False
    for game in read_games(data, on_comment=add):
        is_pgn = is_pgn or bool(game.tags or comments)  # else it may be a text: "f3" in it would be a move
        if not (game.tags or comments or game.moves):
            continue
        number += 1
        place = f"game {number}, {game.tags.get('White', '?')} - {game.tags.get('Black', '?')}"
        for fault in game.faults:
            sys.stderr.write(printable(f"{place}: not all of it was read: {fault}\n"))
        for board, comment in comments:
            if comment:
                yield _checked(place, board, comment)
        comments.clear()
    if not is_pgn:
        raise SetupError("it has no game, and a text needs a position: give --fen")


def _checked(place: str, board: chess.Board, comment: str) -> Checked:
    # Clocks and evaluations become blanks, so that places stay what they are.
    text = re.sub(r"\[%[^\[\]]*\]", lambda match: " " * len(match[0]), comment)
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
    fen = board.fen()
    reading = read(fen, text)
    played = "before the first move"
    if board.move_stack:
        move = board.pop()
        played = f"{board.fullmove_number}{'.' if board.turn else '...'}{board.san(move)}"
        if reading.false or reading.unread:
            # A sentence may be about the position before the move, or about the move and not name it. It is
            # false only if it is so in both.
            last = board.peek().uci() if board.move_stack else None
            previous = read(Study(board.fen(), last=last), text, about=move)
            pairs = zip(reading.sentences, previous.sentences, strict=True)
            reading = TextReading(tuple(itertools.starmap(_better, pairs)))
    sentences = tuple(map(_with_play_open, reading.sentences))
    return Checked(f"{place}, {played}", fen, text, TextReading(sentences))


def _with_play_open(sentence: ReadSentence) -> ReadSentence:
    """Leaves open what is said of play: "Black has won a pawn" may be about moves of a page ago."""
    claims = tuple(
        replace(claim, true=None) if claim.true is False and CONCEPTS[claim.concept].topic in PLAY else claim
        for claim in sentence.claims
    )
    return replace(sentence, claims=claims)


def _better(after: ReadSentence, before: ReadSentence) -> ReadSentence:
    """One of two readings of a sentence: the one without a false claim, else the one that says more."""
    if _has_false(after.claims) != _has_false(before.claims):
        return before if before.claims and not _has_false(before.claims) else after
    return before if len(before.claims) > len(after.claims) else after


def _has_false(claims: Iterable[ReadClaim]) -> bool:
    return any(claim.true is False for claim in claims)


# -- printing ------------------------------------------------------------------------------------


def _print(texts: Iterable[Checked], *, as_json: bool, all_texts: bool) -> int:
    console = SafeConsole(highlight=False, soft_wrap=True)
    total: Counter[str] = Counter()
    for checked in texts:
        counts = checked.count()
        total += counts + Counter(texts=1)
        if as_json:
            sys.stdout.write(checked.json() + "\n")
        elif all_texts or counts["false"]:
            console.print(_marked(checked, colours=console.is_terminal))
    if not as_json:
        console.print(_summary(total))
    return 1 if total["false"] else 0


def _summary(total: Counter[str]) -> str:
    texts = f"{total['texts']} comments, " if total["texts"] > 1 else ""
    sentences = "1 sentence" if total["sentences"] == 1 else f"{total['sentences']} sentences"
    return (
        f"{texts}{sentences}, {total['unread']} of them not read; "
        f"claims: {total['true']} true, {total['false']} false, {total['open']} open"
    )


def _marked(checked: Checked, *, colours: bool) -> Text:
    """The text with its claims in colour, or in brackets as wdiff has them, and the false ones listed."""
    marked, end = Text(), 0
    if checked.place:
        marked.append(f"{checked.place}\n{checked.fen}\n", style="bold" if colours else "")
    for start, stop, style, mark in _stretches(checked.reading):
        words = checked.text[start:stop]
        marked.append(checked.text[end:start])
        marked.append(words, style=style) if colours else marked.append(mark % words)
        end = stop
    marked.append(checked.text[end:].rstrip() + "\n")
    for claim in checked.reading.false:
        marked.append(f"  false: {claim.words} ({claim.concept})\n", style="red" if colours else "")
    return marked


def _stretches(reading: TextReading) -> Iterator[tuple[int, int, str, str]]:
    """Places to be marked, without overlaps, with their styles and marks."""
    for sentence in reading.sentences:
        end = sentence.start
        for claim in sorted(sentence.claims, key=lambda claim: claim.start):
            start = max(claim.start, end)
            if start < claim.end:
                yield start, claim.end, _STYLES[claim.true], _MARKS[claim.true]
                end = claim.end
        if sentence.status in ("partly", "unread") and end < sentence.end:
            yield end, sentence.end, "dim", "{?%s?}"
