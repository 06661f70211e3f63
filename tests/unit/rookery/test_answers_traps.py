r"""From a completion to a verdict's outcome: the traps that answer parsers are known to fall into.

One test per trap, each with its verdict. `test_answers` and `test_notation` try the two halves alone.
"""

import chess
import pytest

from rookery.answers import MAX_BOX_CHARS, extract
from rookery.notation import MoveReading, read_move
from rookery.trace import Outcome

START = chess.STARTING_FEN
AFTER_E4 = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
SCHOLARS_MATE = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
CASTLE = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
NO_CASTLE = "r3k2r/8/8/8/8/8/8/R3K2R w - - 0 1"
PROMOTE = "3n3k/4P3/8/8/8/8/8/4K3 w - - 0 1"
TWO_KNIGHTS = "4k3/8/8/8/8/5N2/8/1N2K3 w - - 0 1"
B_PAWN_OR_BISHOP = "4k3/8/8/8/8/2n5/1P1B4/4K3 w - - 0 1"

CHESS960 = chess.Board("nrk4r/pppppppp/8/8/8/8/PPPPPPPP/NRK4R w HBhb - 0 1", chess960=True)


def judged(response: str, fen: str = START, *, truncated: bool = False) -> MoveReading:
    answer = extract(response, truncated=truncated)
    if answer.missing:
        return MoveReading(answer.missing)
    return read_move(answer.text, chess.Board(fen))


def assert_reads(uci: str, fen: str, *responses: str) -> None:
    for response in responses:
        assert judged(response, fen) == MoveReading(Outcome.LEGAL, chess.Move.from_uci(uci)), response


def assert_refuses(outcome: Outcome, fen: str, *responses: str) -> None:
    for response in responses:
        assert judged(response, fen) == MoveReading(outcome), response


def test_the_last_of_several_boxes_counts() -> None:
    assert_reads("d2d4", START, r"\boxed{e4} \boxed{d4}", r"\boxed{junk} \boxed{} \boxed{d4}")
    assert_refuses(Outcome.ILLEGAL, START, r"\boxed{e4} \boxed{e5}")
    assert_refuses(Outcome.UNPARSABLE, START, r"\boxed{e4} \boxed{or not}")


def test_an_answer_inside_the_reasoning_is_none() -> None:
    inside = r"<think>\boxed{e4}</think>"
    assert_refuses(Outcome.NO_BOX, START, inside, inside + " e4", r"\boxed{e4}</think>", r"<think>\boxed{e4}")
    assert_reads("d2d4", START, inside + r"\boxed{d4}", r"\boxed{e4}</think>\boxed{d4}")


def test_other_tags_and_prose_are_no_box() -> None:
    answers = ("<answer> Nf3 </answer>", "Final Answer: Nf3", "I play **Nf3**.", r'{"move": "Nf3"}', "Nf3")
    assert_refuses(Outcome.NO_BOX, START, *answers)


def test_wrappers_come_off() -> None:
    wrapped = [
        r"\text{Nf3}",
        r"\mathrm{Nf3}",
        r"$Nf3$",
        r"$$Nf3$$",
        r"**Nf3**",
        r"`Nf3`",
        r"\(Nf3\)",
        r"\[Nf3\]",
        r"$\mathbf{\text{Nf3}}$",
        r"**`Nf3`**",
        r"\text{\textbf{1. Nf3!}}",
        "(Nf3)",
        "[Nf3]",
        '"Nf3"',
        "\u201cNf3\u201d",
        "\uff2e\uff46\uff13",
    ]
    assert_reads("g1f3", START, *(rf"\boxed{{{text}}}" for text in wrapped))


def test_braces_are_balanced() -> None:
    assert_reads("e2e4", START, r"\boxed{{e4}}", r"\boxed{{{e4}}}", r"\boxed{\boxed{e4}}")
    assert_refuses(Outcome.TRUNCATED, START, r"\boxed{e4", r"\boxed{{e4}", r"\boxed{\text{e4}")


def test_a_box_that_never_closes_leaves_the_one_that_does() -> None:
    assert_reads("e2e4", START, r"\boxed{e4} \boxed{d4", r"\boxed{d4 \boxed{e4}")


def test_a_completion_cut_before_its_answer_is_truncated() -> None:
    assert judged("Let me think", truncated=True) == MoveReading(Outcome.TRUNCATED)
    assert judged(r"\boxed{e4} and", truncated=True).outcome is Outcome.LEGAL


def test_commands_that_a_string_literal_mangled() -> None:
    assert_reads("g1f3", START, "\boxed{Nf3}", "\boxed{\text{Nf3}}", "\\boxed{\fbox{Nf3}}")


def test_two_moves_in_one_box_are_ambiguous() -> None:
    both = ("Nf3 or e4", "Nf3/e4", "Nf3, e4", "d3(d2d4)", "e4 (d4)", "**Nf3** or **e4**", "e4; d4", "e4|d4")
    assert_refuses(Outcome.AMBIGUOUS, START, *(rf"\boxed{{{text}}}" for text in both))
    assert_refuses(Outcome.AMBIGUOUS, START, r"\boxed{\text{Nf3} \text{ or } \text{e4}}")


def test_one_move_twice_is_that_move() -> None:
    assert_reads("g1f3", START, r"\boxed{Nf3 (g1f3)}", r"\boxed{g1f3, Nf3}", r"\boxed{Nf3 Nf3}")


def test_one_illegal_move_twice_is_illegal() -> None:
    assert_refuses(Outcome.ILLEGAL, START, r"\boxed{d7(d6d7)}", r"\boxed{e5 (e2e5)}", r"\boxed{O-O, e1g1}")


def test_a_mistyped_uci_move_is_no_algebraic_notation() -> None:
    fen = "4k3/8/8/8/8/Q7/8/4K3 w - - 0 1"
    assert_refuses(Outcome.UNPARSABLE, fen, r"\boxed{q3a4}", r"\boxed{**q3a4**}", r"\boxed{q3a4 (Qa4)}")
    assert_reads("a3a4", fen, r"\boxed{Q3a4}", r"\boxed{a3a4}", r"\boxed{qa4}")


def test_a_line_of_moves_is_ambiguous() -> None:
    lines = ("Nf3 Nc6 Bb5", "1. e4 e5 2. Nf3", "e4 e5", "1.e4 e5", "e2e4 e7e5")
    assert_refuses(Outcome.AMBIGUOUS, START, *(rf"\boxed{{{text}}}" for text in lines))


def test_move_numbers_come_off() -> None:
    assert_reads("e2e4", START, *(rf"\boxed{{{text}}}" for text in ("1. e4", "1.e4", "1 . e4", "1... e4")))
    dots = ("1... e5", "1...e5", "...e5", "... e5", "1. ... e5", "\u2026e5", "1\u2026 e5")
    assert_reads("e7e5", AFTER_E4, *(rf"\boxed{{{text}}}" for text in dots))


def test_resignation_is_no_move() -> None:
    assert_refuses(Outcome.UNPARSABLE, START, r"\boxed{Nothing fits, I resign}", r"\boxed{resign}")
    assert_refuses(Outcome.EMPTY_BOX, START, r"\boxed{}", r"\boxed{ }", r"\boxed{\text{ }}", r"\boxed{**}")


def test_a_long_answer_is_none_however_it_ends() -> None:
    assert_refuses(Outcome.TOO_LONG, START, rf"\boxed{{{' ' * MAX_BOX_CHARS}e4}}")
    assert_reads("e2e4", START, rf"\boxed{{{' ' * (MAX_BOX_CHARS - 2)}e4}}")


def test_data_formats_in_a_box_are_no_move() -> None:
    blocks = (
        '{"move": "e4"}',
        '```json\n{"move": "e4"}\n```',
        "move=e4",
        "<move>pawn to e4</move>",
        "e4: king's pawn",
    )
    assert_refuses(Outcome.UNPARSABLE, START, *(rf"\boxed{{{text}}}" for text in blocks))


def test_words_beside_a_move_spoil_it() -> None:
    verbose = (
        "I play Nf3",
        "Best move: Nf3",
        "Nf3 is best",
        "Nf3 because it develops",
        "knight f3",
        "Nf3 mate",
    )
    assert_refuses(Outcome.UNPARSABLE, START, *(rf"\boxed{{{text}}}" for text in verbose))


@pytest.mark.parametrize(
    "suffix", ["", "+", "#", "!", "?", "!!", "??", "!?", "?!", "++", " $1", " $14", ".", ":", ","]
)
def test_suffixes_do_not_matter(suffix: str) -> None:
    assert_reads("f3f7", SCHOLARS_MATE, rf"\boxed{{Qxf7{suffix}}}", rf"\boxed{{f3f7{suffix}}}")
    assert_reads("g1h3", SCHOLARS_MATE, rf"\boxed{{Nh3{suffix}}}")  # superfluous


def test_en_passant_may_be_said() -> None:
    fen = "4k3/8/8/4Pp2/8/8/8/4K3 w - f6 0 1"
    said = ("exf6", "exf6 e.p.", "exf6e.p.", "exf6 ep", "exf6 (e.p.)", "e5f6", "e5xf6 e.p.")
    assert_reads("e5f6", fen, *(rf"\boxed{{{text}}}" for text in said))


def test_case_decides_between_a_pawn_and_a_bishop() -> None:
    assert_reads("b2c3", B_PAWN_OR_BISHOP, r"\boxed{bxc3}", r"\boxed{bc3}")
    assert_reads("d2c3", B_PAWN_OR_BISHOP, r"\boxed{Bxc3}", r"\boxed{Bc3}")
    assert_reads("g1f3", START, r"\boxed{nf3}")


def test_a_pawn_takes_only_what_is_there() -> None:
    assert_refuses(Outcome.ILLEGAL, START, r"\boxed{exe4}", r"\boxed{xe4}", r"\boxed{exd3}", r"\boxed{Pxe4}")


def test_a_knight_is_no_pawn() -> None:
    assert_refuses(Outcome.ILLEGAL, START, r"\boxed{Pg1f3}", r"\boxed{Pf3e5}")
    assert_reads("e2e4", START, r"\boxed{Pe4}", r"\boxed{Pe2e4}", r"\boxed{Pe2-e4}")


@pytest.mark.parametrize(
    "text", ["O-O", "0-0", "o-o", "O-O+", "e1g1", "e1h1", "O\u2013O", "O-O (e1g1)", "Ke1g1", "Ke1-g1+"]
)
def test_castling_in_every_spelling(text: str) -> None:
    assert_reads("e1g1", CASTLE, rf"\boxed{{{text}}}")
    assert_refuses(Outcome.ILLEGAL, NO_CASTLE, rf"\boxed{{{text.split()[0]}}}")


@pytest.mark.parametrize(
    "text", ["O-O-O", "0-0-0", "o-o-o", "O-O-O#", "e1c1", "e1a1", "0\u20110\u20110", "Ke1-c1"]
)
def test_castling_long_in_every_spelling(text: str) -> None:
    assert_reads("e1c1", CASTLE, rf"\boxed{{{text}}}")
    assert_refuses(Outcome.ILLEGAL, NO_CASTLE, rf"\boxed{{{text}}}")


def test_castling_is_not_a_king_move_in_algebraic_notation() -> None:
    assert_refuses(Outcome.ILLEGAL, CASTLE, r"\boxed{Kg1}", r"\boxed{Kc1}", r"\boxed{Kxh1}", r"\boxed{Keg1}")


@pytest.mark.parametrize("piece", "QRBN")
def test_promotion_in_every_spelling(piece: str) -> None:
    low = piece.lower()
    texts = (f"e8={piece}", f"e8{piece}", f"e8({piece})", f"e8/{piece}", f"e8 = {piece}", f"e8 ({piece})")
    coordinates = (f"e7e8{low}", f"e7e8{piece}", f"e7e8={piece}", f"e7-e8={low}", f"e8={low}", f"e8={piece}+")
    assert_reads(f"e7e8{low}", PROMOTE, *(rf"\boxed{{{text}}}" for text in texts + coordinates))
    assert_reads(f"e7d8{low}", PROMOTE, rf"\boxed{{exd8={piece}}}", rf"\boxed{{exd8{piece}#}}")


def test_a_promotion_without_its_piece_is_ambiguous() -> None:
    assert_refuses(Outcome.AMBIGUOUS, PROMOTE, *(rf"\boxed{{{t}}}" for t in ("e8", "e7e8", "exd8", "Pe8")))
    assert_refuses(
        Outcome.ILLEGAL, PROMOTE, r"\boxed{e8=K}", r"\boxed{e7e8k}", r"\boxed{f8}", r"\boxed{e7f8}"
    )


def test_ambiguous_algebraic_notation_is_never_settled_by_luck() -> None:
    assert_refuses(Outcome.AMBIGUOUS, TWO_KNIGHTS, r"\boxed{Nd2}", r"\boxed{Nd2+}", r"\boxed{nd2}")
    assert_reads("b1d2", TWO_KNIGHTS, r"\boxed{Nbd2}", r"\boxed{N1d2}", r"\boxed{Nb1d2}", r"\boxed{b1d2}")


def test_long_algebraic_notation() -> None:
    long = ("Ng1f3", "Ng1-f3", "g1-f3", "Ng1\u2013f3", "Ng1\u2192f3", "g1 \u2192 f3", "g1->f3", r"g1\to f3")
    assert_reads("g1f3", START, *(rf"\boxed{{{text}}}" for text in long))
    assert_reads("e2e4", START, r"\boxed{e2-e4}", r"\boxed{e2 -> e4}")
    assert_refuses(Outcome.ILLEGAL, START, r"\boxed{Bg1f3}", r"\boxed{Nb1f3}")


@pytest.mark.parametrize(
    "text",
    [
        "--",
        "Z0",
        "z0",
        "0000",
        "@@@@",
        "1. --",
        "--!",
        r"\text{--}",
        "**Z0**",
        "$0000$",
        "`@@@@`",
        "\u2014\u2014",
    ],
)
def test_the_null_move_is_refused_by_name(text: str) -> None:
    for fen in (START, CASTLE, AFTER_E4):
        assert_refuses(Outcome.NULL_MOVE, fen, rf"\boxed{{{text}}}")


def test_a_move_to_its_own_square_is_illegal() -> None:
    assert_refuses(Outcome.ILLEGAL, START, r"\boxed{a1a1}", r"\boxed{e2e2}", r"\boxed{e4e4}")
    assert_refuses(Outcome.ILLEGAL, START, r"\boxed{P--}", r"\boxed{PZ0}")


def test_drops_are_no_moves() -> None:
    assert_refuses(
        Outcome.UNPARSABLE, START, r"\boxed{N@f3}", r"\boxed{P@e4}", r"\boxed{@e4}", r"\boxed{n@f3}"
    )


def test_figurines() -> None:
    assert_reads("g1f3", START, "\\boxed{\u2658f3}", "\\boxed{\u265ef3}", "\\boxed{\u2658\ufe0ef3}")
    assert_reads("e2e4", START, "\\boxed{\u2659e4}")
    assert_reads("e7e8q", PROMOTE, "\\boxed{e8=\u2655}", "\\boxed{e8\u265b}")


@pytest.mark.parametrize(
    "text", ["Sf3", "Cf3", "Pf3e5", "\u041af3", "\u0421f3", "Hf3", "Jf3", "Lc4", "Fc4", "Ac4", "Df3"]
)
def test_letters_of_other_languages_are_not_guessed(text: str) -> None:
    assert judged(rf"\boxed{{{text}}}", SCHOLARS_MATE).move is None


def test_squares_in_other_alphabets_are_not_guessed() -> None:
    assert_refuses(Outcome.UNPARSABLE, START, "\\boxed{\u0435\u0034}", "\\boxed{e\u0664}", "\\boxed{\u03b54}")


def test_capital_squares_are_not_guessed() -> None:
    assert_refuses(Outcome.UNPARSABLE, START, r"\boxed{E2E4}", r"\boxed{E4}", r"\boxed{NF3}")


@pytest.mark.parametrize(
    "text", ["e9", "i4", "Nf9", "e2e9", "5254", "P-K4", "N-KB3", "e", "4", "Qx", "x", "=Q", "+", "?!"]
)
def test_no_square_no_move(text: str) -> None:
    assert_refuses(Outcome.UNPARSABLE, START, rf"\boxed{{{text}}}")


def test_legal_syntax_on_another_board_is_illegal() -> None:
    assert_refuses(
        Outcome.ILLEGAL, START, *(rf"\boxed{{{t}}}" for t in ("e5", "Qh5", "e7e5", "Ke2", "O-O", "Nxe5"))
    )


@pytest.mark.parametrize(
    ("text", "uci"),
    [
        ("O-O", "c1h1"),
        ("0-0", "c1h1"),
        ("c1h1", "c1h1"),
        ("O-O-O", "c1b1"),
        ("c1b1", "c1b1"),
        ("c1d1", "c1d1"),
        ("Kd1", "c1d1"),
    ],
)
def test_castling_text_in_chess960(text: str, uci: str) -> None:
    assert read_move(text, CHESS960) == MoveReading(Outcome.LEGAL, chess.Move.from_uci(uci))


@pytest.mark.parametrize("text", ["c1g1", "c1c1", "Kg1", "Kxh1", "Kxb1", "e1g1", "e1h1", "h1c1"])
def test_castling_in_chess960_is_king_takes_rook(text: str) -> None:
    assert read_move(text, CHESS960) == MoveReading(Outcome.ILLEGAL)
