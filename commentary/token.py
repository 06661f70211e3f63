"""The words of a text that mean something on a board: pieces, squares, files, sides, moves, lines.

`lex` replaces each by a mark such as `«p3»`, so that templates deal with sentences and not with squares.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import chess

Kind = Literal["l", "g", "p", "f", "o", "m", "q", "s", "i"]
"""Line, group of pieces, piece, files, owner, move, squares, side, pronoun."""

_KINDS: tuple[Kind, ...] = get_args(Kind)

NAMES = {chess.piece_name(kind): kind for kind in chess.PIECE_TYPES}


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """One mention in a text. `words` is what stood there; the other fields are what could be read from it.
    Two of the same words are not equal, because they may mean different pieces."""

    kind: Kind
    words: str
    owner: str = ""
    shade: str = ""
    adjective: str = ""
    name: str = ""
    squares: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    number: int = 0
    black: bool = False


_SQUARE = r"[a-h][1-8]"
_SQUARES = rf"{_SQUARE}(?:, {_SQUARE})*(?:,? (?:and|or) {_SQUARE})?"
_PIECE = r"[Kk]ing|[Qq]ueen|[Rr]ook|[Bb]ishop|[Kk]night|[Pp]awn"
_OWNER = r"[Ww]hite's|[Bb]lack's|(?:[Mm]y|[Oo]ur|[Tt]he) opponent's|[Mm]y|[Oo]ur"
_DOES = r"(?:is|are|has|have|can|could|will|would|should|may|must|to move)"
_COMPOUNDS = r"(?:pair|ending|endgame|move|structure|cover|majority|shield|push|sacrifice|trade)\b"
_THAT = r"[Tt]hat|[Tt]his|[Tt]hose|[Tt]hese"
_ADJECTIVE = r"pinned|undefended|loose|isolated|backward|passed|doubled|hanging"
_SHADE = r"light-squared|dark-squared|[Ww]hite|[Bb]lack"
_PLACE = r"(?:currently )?(?:located |positioned |placed )?(?:on|at)(?: square| position)?"
_PLAIN = rf"(?:(?:{_SHADE}) )?(?:{_PIECE}) (?:{_PLACE} {_SQUARE}|\({_SQUARE}\))"
_PLACED_GROUP = rf"(?:(?:{_ADJECTIVE}) )?(?:(?:{_SHADE}) )?(?:{_PIECE})s (?:on|at) {_SQUARE}"
_THEIR = r"[Tt]heir|[Hh]is|[Hh]er|[Ii]ts"
_MOVE = (
    r"(?:O-O-O|O-O|[a-h][1-8][a-h][1-8][qrbn]?|[KQRBN]?[a-h][1-8][-x][a-h][1-8](?:=?[QRBN])?|"
    r"[KQRBNP][a-h]?[1-8]?x?[a-h][1-8]|[a-h]x[a-h][1-8](?:=[QRBN])?|[a-h][18]=[QRBN])[+#]?|"
    rf"{_SQUARE}[+#]"
)
_ANY_MOVE = rf"(?:{_MOVE}|{_SQUARE})"
_NUMBERED = rf"\d+\.(?:\.\.)? ?{_ANY_MOVE}"

_WORDS = re.compile(
    "|".join(
        (
            rf"(?P<l>(?<![\w.]){_NUMBERED}(?: (?:{_NUMBERED}|{_ANY_MOVE}(?![\w-])))*)",
            # Two pawns, or a pawn, are no pieces on the board unless it is said where.
            rf"(?P<g>(?<![\w-])(?:(?P<gowner>{_OWNER})|[Bb]oth|"
            rf"(?:[Tt]hose|[Tt]hese|[Tt]he)(?= {_PLACED_GROUP}| [a-h]-)) "
            rf"(?:(?P<gadj>{_ADJECTIVE}) )?(?:(?P<gshade>{_SHADE}) )?"
            rf"(?:(?P<gfile>[a-h])-)?(?P<gname>(?:{_PIECE})s)(?: (?:on|at) (?P<gsquares>{_SQUARES}))?)"
            r"(?![\w-])",
            rf"(?P<p>(?<![\w-])(?:(?P<powner>{_OWNER})|(?P<pthat>{_THAT})|[Tt]he|"
            rf"(?:[Aa]|{_THEIR})(?= {_PLAIN})) "
            rf"(?:(?P<padj>{_ADJECTIVE}) )?(?:(?P<pshade>{_SHADE}) )?"
            rf"(?:(?P<pat>{_SQUARE}(?=[- ])|[a-h](?=-))[- ])?(?P<pname>{_PIECE})"
            rf"(?: {_PLACE} (?P<psquare>{_SQUARE})| \((?P<pparen>{_SQUARE})\))?)"
            rf"(?![\w-]| {_COMPOUNDS})",
            r"(?P<f>[Tt]he (?:(?P<fadj>open|half-open) )?"
            r"(?P<files>[a-h](?:-?, [a-h])*(?:- (?:and|or) [a-h])?)-files?)",
            rf"(?P<m>\.\.\.{_ANY_MOVE}|(?<![\w-])(?:{_MOVE})(?!\w))",
            rf"(?P<q>\b{_SQUARES}\b)",
            rf"(?P<s>\b(?:White|Black|(?:white|black)(?= {_DOES}\b)|I|[Ww]e|me|us|[Tt]he other side|"
            r"(?:[Mm]y|[Oo]ur|[Tt]he) opponent)\b(?!'))",
            rf"(?P<o>\b(?:{_OWNER})(?= ))",
            r"(?P<i>\b[Ii]t\b)",
        )
    )
)
_UCI = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?")
_LONG = re.compile(r"[KQRBN]?[a-h][1-8][-x][a-h][1-8](?:=?[QRBN])?[+#]?")
_MARK = re.compile(r"«([lgpfomqsi])(\d+)»")
_STEP = re.compile(rf"(?:(\d+)\.(\.\.)? ?)?({_ANY_MOVE})(?=[, ]|$)")
_SAN_AHEAD = r"O-O|[KQRBN][a-h]?[1-8]?x?[a-h][1-8]|[a-h][1-8x](?![a-h1-8])"
_TIDIED = (
    # Emphasis, quotation marks, brackets, list marks, blanks: a text need not be laid out as prose.
    (re.compile(r"[*_`\"“”\[\]]+|(?<![1-8QRBNO])#+|'(?=[a-h][1-8])|(?<=[a-h][1-8])'"), ""),
    (re.compile(rf"^\s*(?:[-•+]|\d{{1,2}}[.)](?= (?!{_SAN_AHEAD})))\s+"), ""),
    (re.compile(r"\s+"), " "),
    (re.compile(rf"(?<=[1-8O+#])[!?]{{1,2}}(?= (?:\d{{1,3}}\. ?)?(?:{_SAN_AHEAD}))"), ""),
)
_LISTED = rf"(?:{_PIECE})s?"
_SHORT_FORMS = (
    # Lists of pieces and ways: "Rook (c2), pawns a3, g3", "e2->e4".
    (re.compile(rf"\b((?:King|Queen|Rook|Bishop|Knight|Pawn)s?) \(({_SQUARES})\)"), r"\1 on \2"),
    (re.compile(rf"(?:^|(?<=[:;,] )|(?<=, and ))({_LISTED}) (?={_SQUARE}(?:[,.;]|$| and))"), r"\1 on "),
    (re.compile(rf"(?<=[a-h][1-8]) ?(?:->|\u2192) ?(?={_SQUARE}\b)"), " -> "),
    # British spelling, which the templates have.
    (re.compile(r"\b([Cc])enter\b"), r"\1entre"),
    (re.compile(r"\b([Dd]efen|[Oo]ffen)se\b"), r"\1ce"),
    (re.compile(r"\b([Cc]ol|[Ff]av)or(?=s\b|ed\b|\b)"), r"\1our"),
    (re.compile(r"(?<=entrali)z"), "s"),
    (re.compile(r"\b(?:semi|half)[- ]open\b", re.IGNORECASE), "half-open"),
    (re.compile(r"\b(queen|king)[- ]side\b", re.IGNORECASE), r"\1side"),
    (re.compile(r"\b(let)['\u2019]s\b", re.IGNORECASE), r"\1 us"),
    (re.compile(r"\b(it|that|there|what|here|who)['\u2019]s\b", re.IGNORECASE), r"\1 is"),
    (re.compile(r"\b(I)['\u2019]m\b"), r"\1 am"),
    (re.compile(r"\b(we|they|you)['\u2019]re\b", re.IGNORECASE), r"\1 are"),
    (re.compile(r"\b(I|we|they|you)['\u2019]ve\b", re.IGNORECASE), r"\1 have"),
    (re.compile(r"\b(I|we|they|it|that)['\u2019]ll\b", re.IGNORECASE), r"\1 will"),
    (re.compile(r"\b(I|we|they|it)['\u2019]d\b", re.IGNORECASE), r"\1 would"),
    (re.compile(r"\b(can)['\u2019]t\b"), r"\1not"),
    (re.compile(r"\bwon['\u2019]t\b"), "will not"),
    (re.compile(r"\b(is|are|does|do|has|have|would|did)n['\u2019]t\b", re.IGNORECASE), r"\1 not"),
)


def parse_move(board: chess.Board, text: str) -> chess.Move | None:
    """The legal move in SAN or UCI; a check or mate sign may be missing, but not be wrong.

    >>> str(parse_move(chess.Board(), "Nf3")), parse_move(chess.Board(), "Nf3+")
    ('g1f3', None)
    """
    try:
        if _UCI.fullmatch(text):
            return board.parse_uci(text)
        move = board.parse_san(text)
    except ValueError:
        return None
    if _LONG.fullmatch(text):
        return move
    return move if text in (right := board.san(move), right.rstrip("+#")) else None


@dataclass(frozen=True, slots=True)
class Lexed:
    """A sentence in lower case with marks for tokens; `origins[i]` is where its i-th character came from."""

    text: str
    tokens: tuple[Token, ...]
    origins: tuple[int, ...]


def lex(sentence: str) -> Lexed:
    """The sentence with short forms written out and marks for its tokens.

    >>> lex("White's knight on f6 attacks e8.").text
    '«p0» attacks «q1».'
    """
    text, origins = sentence.replace("«", "<").replace("»", ">"), list(range(len(sentence) + 1))
    for pattern, written_out in (*_TIDIED, *_SHORT_FORMS):
        text, origins = _replaced(pattern, text, origins, lambda match: match.expand(written_out))  # noqa: B023
    tokens: list[Token] = []

    def mark(match: re.Match[str]) -> str:
        tokens.append(_token(match))
        return f"«{tokens[-1].kind}{len(tokens) - 1}»"

    text, origins = _replaced(_WORDS, text, origins, mark)
    # One character for one: some letters have two in lower case.
    return Lexed("".join(c.lower()[0] for c in text), tuple(tokens), tuple(origins))


def _replaced(
    pattern: re.Pattern[str], text: str, origins: list[int], replacement: Callable[[re.Match[str]], str]
) -> tuple[str, list[int]]:
    parts: list[str] = []
    places: list[int] = []
    last = 0
    for match in pattern.finditer(text):
        put = replacement(match)
        parts += [text[last : match.start()], put]
        places += [*origins[last : match.start()], *[origins[match.start()]] * len(put)]
        last = match.end()
    return "".join(parts) + text[last:], places + origins[last:]


def _token(match: re.Match[str]) -> Token:
    """What the groups of the kind that has matched say; a group's name begins with its kind."""
    groups = {name: words for name, words in match.groupdict().items() if words is not None}
    kind = next(kind for kind in _KINDS if kind in groups)
    words, at = match[0], groups.get(kind + "at", "")
    steps = _STEP.findall(words) if kind == "l" else []
    moves = [words.removeprefix("...")] if kind == "m" else [san for _, _, san in steps]
    owner = words if kind in "os" else groups.get(kind + "owner", "")
    place = groups.get(kind + "square") or groups.get(kind + "paren") or at
    squares = words if kind == "q" else groups.get(kind + "squares") or place
    return Token(
        kind,
        words,
        owner=owner.lower().removesuffix("'s"),
        shade=groups.get(kind + "shade", "").lower(),
        adjective=groups.get(kind + "adj", ""),
        name=groups.get(kind + "name", "").lower().removesuffix("s"),
        squares=tuple(re.findall(_SQUARE, squares)),
        files=tuple(re.findall(r"\b[a-h]\b", groups.get("files") or groups.get(kind + "file", at))),
        moves=tuple(moves),
        number=int(steps[0][0]) if steps else 0,
        black=bool(steps[0][1]) if steps else words.startswith("..."),
    )


def marks(text: str) -> list[tuple[str, int]]:
    """Kind and number of each mark in a lexed text, in order."""
    return [(kind, int(number)) for kind, number in _MARK.findall(text)]
