"""Completions and FENs as they should not be: spliced from whatever has confused a parser, seeded."""

import random
from collections.abc import Iterator, Sequence

import chess

BOARDS = {
    "start": chess.STARTING_FEN,
    "castling": "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "promotion": "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1",
    "en passant": "8/8/8/k1pP3R/8/8/8/K7 w - c6 0 2",
    "check": "4k3/8/8/8/7b/8/3P1P2/3QK3 w - - 3 30",
    "many queens": "3k4/8/8/8/2Q1Q3/8/2Q1Q3/4K3 w - - 0 90",
    "chess960": "nrk4r/pppppppp/8/8/8/8/PPPPPPPP/NRK4R b HBhb - 4 9",
}

MOVES = (
    *("e4", "Nf3", "g1f3", "O-O", "0-0-0", "o-o", "e1g1", "e1h1", "c8h8", "bxc3", "Bxc3", "axb8=Q", "b7b8n"),
    *(
        "d5c6",
        "dxc6 e.p.",
        "Qcd3",
        "Q4d3",
        "Qd3",
        "Ke2",
        "e8",
        "a1a1",
        "exe4",
        "P@e4",
        "Sf3",
        "E2E4",
        "e2-e4",
    ),
    *("--", "Z0", "0000", "@@@@", "e9", "h7h8=K", "Qxf7#", "fxg2+", "g2g1q", "gxh1(R)", "gxf1/B", "\u2658f3"),
)
WORDS = (
    "I play",
    "or",
    "and",
    "because",
    "resign",
    "Final Answer:",
    '{"move": "e4"}',
    "1.",
    "12...",
    "mate",
    "null",
)
TAGS = (
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "<|im_end|>",
    "```",
    "\\[",
    "\\]",
    "\\(",
    "\\)",
    "$",
    "**",
)
BOXES = (
    "\\boxed{",
    "\boxed{",
    "\\boxed {",
    "\\\\boxed{",
    "boxed{",
    "\\text{",
    "\text{",
    "\\mathbf{",
    "{",
    "}",
    "}}",
)
ODDITIES = (
    *("\x00", "\x1b[0m", "\r\n", "\u200b", "\ufeff", "\u202e", "\u0301", "\ufdfa", "\uff25\uff14", "\ud800"),
    *("\U0001f47b", "\u2028", "\u0664", "\u2013", "\u2026", "\u00d7", "\u212a", "\u2192", "\u00bd", "\t"),
)
WRAPPERS = (
    *(
        "{}",
        " {} ",
        "\\text{{{}}}",
        "\\mathrm{{{}}}",
        "**{}**",
        "${}$",
        "`{}`",
        '"{}"',
        "({})",
        "[{}]",
        "{}!?",
    ),
    *(
        "1. {}",
        "...{}",
        "\\textbf{{{}}}\\#",
        "{{{}}}",
        "\u201c{}\u201d",
        "{}\u200b",
        "<answer>{}</answer>",
        "{} {}",
    ),
)


def completions(*, seed: int, count: int, fragments: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """A FEN of `BOARDS` and a splice of boxes, tags, moves and `fragments`; every other has an answer."""
    rng = random.Random(seed)
    pools = [WORDS, TAGS, BOXES, ODDITIES, fragments or WORDS]
    legal = {fen: (*_names(fen), *MOVES) for fen in BOARDS.values()}
    for number in range(count):
        fen, moves = rng.choice(list(legal.items()))
        text = " ".join(rng.choice(rng.choice([moves, *pools])) for _ in range(rng.randint(0, 8)))
        if number % 2:
            text += _answer(rng, moves)
        yield fen, _mutated(rng, text) if rng.random() < 0.3 else text


def _names(fen: str) -> list[str]:
    board = chess.Board(fen, chess960="HBhb" in fen)
    return [
        name for move in board.legal_moves for name in (board.san(move), board.uci(move), board.lan(move))
    ]


def _answer(rng: random.Random, moves: Sequence[str]) -> str:
    move = rng.choice(moves)
    for _ in range(rng.randint(0, 2)):
        move = rng.choice(WRAPPERS).replace("{}", move).replace("{{", "{").replace("}}", "}")
    if rng.random() < 0.1:
        move += rng.choice((rng.choice(moves), rng.choice(WORDS), " " * 100))
    return (
        rng.choice(("</think>", " ", "\n")) + "\\boxed{" + move + "}" + rng.choice(("", " ", ".", "$", "\n"))
    )


def _mutated(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 4)):
        place = rng.randint(0, len(text))
        piece = rng.choice(
            (rng.choice(ODDITIES), rng.choice("\\{}<>$*0189abhNKx+#=-"), chr(rng.randrange(0x3000)))
        )
        text = text[:place] + rng.choice(("", piece, text[:30])) + text[place + rng.randint(0, 3) :]
    return text


def fens(*, seed: int, count: int) -> Iterator[str]:
    """Positions with characters, fields and numbers changed, and boards set up by chance."""
    rng = random.Random(seed)
    bases = [*BOARDS.values(), "bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9"]
    for _ in range(count):
        if rng.random() < 0.25:
            yield _random_board(rng)
            continue
        fen = rng.choice(bases)
        for _ in range(rng.randint(1, 2)):
            fen = rng.choice((_other_character, _other_character, _other_field))(rng, fen)
        yield fen


def _other_character(rng: random.Random, fen: str) -> str:
    place = rng.randint(0, len(fen))
    new = rng.choice((*"KQRBNPkqrbnp12345678/ wb-0~[]", "", "\x00", "\u0663", "\u212a", "\n"))
    return fen[:place] + new + fen[place + rng.randint(0, 1) :]


def _other_field(rng: random.Random, fen: str) -> str:
    fields = fen.split(" ")
    place = rng.randrange(len(fields))
    match rng.randrange(5):
        case 0:
            del fields[place]
        case 1:
            rng.shuffle(fields)
        case 2:
            fields.insert(place, rng.choice(fields))
        case 3:
            numbers = ("0", "-1", "99", "100", "150", "9" * 18, "9" * 80, "1_0", "1e3", "\u0661", "NaN")
            fields[-rng.randint(1, min(2, len(fields)))] = rng.choice(numbers)
        case _:
            texts = (
                "w",
                "b",
                "-",
                "KQkq",
                "HAha",
                "Kk",
                "Qq",
                "GBgb",
                "KK",
                "e3",
                "e6",
                "a6",
                "h3",
                "a1",
                "~",
            )
            fields[place] = rng.choice(texts)
    return " ".join(fields)


def _random_board(rng: random.Random) -> str:
    board = chess.Board(None)
    squares = rng.sample(chess.SQUARES, rng.randint(2, 30))
    board.set_piece_at(squares[0], chess.Piece(chess.KING, chess.WHITE))
    board.set_piece_at(squares[1], chess.Piece(chess.KING, chess.BLACK))
    kinds = rng.choice(([1, 2, 3, 4, 5], [5], [2], [1], [1, 2], [3, 4]))
    for square in squares[2:]:
        if 8 <= square < 56 or rng.random() < 0.3:
            board.set_piece_at(square, chess.Piece(rng.choice(kinds), rng.random() < 0.5))
    fields = (
        rng.choice("wb"),
        rng.choice(("-", "-", "-", "KQkq", "Kq")),
        "-",
        rng.choice("09"),
        rng.randint(0, 200),
    )
    return " ".join(map(str, (board.board_fen(), *fields)))
