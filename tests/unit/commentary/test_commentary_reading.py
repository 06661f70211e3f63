"""What the reader believes, what it does not, and that no text breaks it."""

import random

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commentary import Score, Study, StudyLine, read
from tests.unit.commentary.boards import random_board

# White: Ng5, Qh5, Bc4 at f7; the pawn e5 hangs to Nc6; Black's Ra8 and Bc8 are at home.
ATTACK = "r1bqk2r/pppp1ppp/2n2n2/4p1NQ/2B1P3/8/PPPP1PPP/RNB1K2R w KQkq - 0 5"
# A rook ending: White has the c-file, Black a weak pawn on d5.
ENDING = "6k1/pp3ppp/8/3p4/3P4/8/PP3PPP/2R3K1 w - - 0 25"


@pytest.mark.parametrize(
    "text",
    [
        "White's queen on h5 attacks the pawn on f7.",
        "The pawn on f7 is attacked by the queen on h5, the knight on g5 and the bishop on c4.",
        "Only Black's king defends the pawn on f7.",
        "The knight on f6 attacks White's queen.",
        "White is a piece up, and Black has yet to develop the bishop on c8.",
        "Black's king is still in the centre, but Black can still castle on either side.",
        "Qxf7# captures the pawn on f7 and is checkmate.",
        "White's queen on h5 hangs to Black's knight on f6.",
        "It's clear that nothing happens to the knight on g5, which nothing defends.",
    ],
)
def test_true_sentences_are_read_and_believed(text: str) -> None:
    reading = read(ATTACK, text)
    if "clear that" in text:
        assert reading.unread
        return
    assert reading.sound
    assert reading.share_read == 1


@pytest.mark.parametrize(
    "text",
    [
        "White's queen on h5 attacks the pawn on g7.",
        "White's queen on h4 attacks the pawn on f7.",
        "Black's queen on h5 attacks the pawn on f7.",
        "White's rook on h5 attacks the pawn on f7.",
        "The pawn on f7 is attacked by the queen on h5, the knight on g5 and the bishop on b3.",
        "Only Black's queen defends the pawn on f7.",
        "The bishop on f6 attacks the queen.",
        "White is a pawn up.",
        "Material is level.",
        "The knight on e4 is undefended.",
        "Black has yet to develop the knight on c6.",
        "Black can no longer castle.",
        "Qxf7+ captures the pawn on f7.",
        "Qxf7# captures the knight on f7.",
        "Bxf7+ is checkmate.",
        "The material is even; White's pawn on e4 is passed.",
    ],
)
def test_false_sentences_are_caught(text: str) -> None:
    reading = read(ATTACK, text)
    assert not reading.unread
    assert reading.false


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("This is a rook ending.", False),
        ("White's rook on c1 holds the open c-file.", True),
        ("White's rook on c1 holds the open d-file.", False),
        ("The c- and e-files are open.", True),
        ("The c- and d-files are open.", False),
        ("Black has an isolated pawn on d5.", True),
        ("White has an isolated pawn on d4.", True),
        ("The pawns on a7, b7 and d5 are isolated.", False),
        ("The pawn on d4 and the pawn on d5 block each other.", True),
        ("White is a rook up.", True),
        ("White is the exchange up.", False),
        ("White to move.", True),
        ("Black to move.", False),
    ],
)
def test_an_ending(text: str, holds: bool) -> None:
    reading = read(ENDING, text)
    assert not reading.unread
    assert bool(reading.false) != holds


# Black has just taken on d5, by the clock; Black's pawn on c6 and White's on c4 and e4 could take there.
AMID = "rnbqkb1r/pp3ppp/2p2n2/3p4/2P1P3/2N5/PP3PPP/R1BQKBNR w KQkq - 0 6"


@pytest.mark.parametrize(
    ("text", "last", "true"),
    [
        ("cxd5 recaptures.", "e6d5", True),
        ("cxd5 takes back on d5.", "e6d5", True),
        ("cxd5 recaptures.", "d7d5", False),
        ("cxd5 recaptures.", "f8e7", False),
        ("cxd5 recaptures.", None, None),
        ("After 6.cxd5, 6...cxd5 recaptures.", None, True),
        ("After 6.a3, 6...dxc4 recaptures.", None, False),
        ("Be2 recaptures.", None, False),
    ],
)
def test_what_takes_back_has_been_taken_from(text: str, last: str | None, true: bool | None) -> None:
    claims = read(Study(AMID, last=last), text).claims
    assert [claim.true for claim in claims if claim.concept == "recaptures"] == [true]


def test_by_a_running_clock_nothing_was_taken() -> None:
    [claim] = read(AMID.replace(" 0 6", " 1 6"), "cxd5 recaptures.").claims
    assert claim.true is False
    [claim] = read(AMID.replace("- 0 6", "d6 0 6"), "cxd5 recaptures.").claims
    assert claim.true is False


QUEENS = "rnbqkbnr/ppp2ppp/8/3pp3/3PP3/8/PPP2PPP/RNBQKBNR w KQkq - 0 3"


@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("3.dxe5 dxe4 4.Qxd8+ Kxd8, and now the queens come off.", True),
        ("3.dxe5 dxe4 4.Qxd8+, and now the queens come off.", None),
        ("3.dxe5 dxe4, and now the queens come off.", None),
        ("3.a3 a6, and now the queens come off.", False),
        ("The queens come off.", False),
        ("The queens are off the board.", False),
        ("dxe5 wins a pawn.", True),
        ("dxe5 wins the pawn on e5.", True),
        ("exd5 wins a pawn.", None),
        ("exd5 picks up the pawn on d5.", None),
        ("exd5 captures a pawn.", True),
        ("exd5 takes the pawn on d5.", True),
        ("Qd3 stops ...Qf6.", False),
        ("Bb5+ stops ...Qf6.", None),
    ],
)
def test_what_is_only_offered_or_put_off_cannot_be_known(text: str, true: bool | None) -> None:
    assert read(QUEENS, text).claims[-1].true is true


# White has a rook and two pawns, Black a bishop and four.
UNEVEN = "6k1/1p3pbp/1p6/8/8/4P3/5P2/R5K1 w - - 0 1"
# Each side has two pieces, White two pawns more.
PIECES = "2n3k1/5pbp/8/8/8/2B1P3/3PPPP1/R5K1 w - - 0 1"
# White has a knight more; Black has a pawn more, or three.
FOR_ONE, FOR_THREE = (
    "6k1/5ppp/8/8/8/8/3N1PP1/6K1 w - - 0 1",
    "6k1/3ppppp/8/8/8/8/3N1PP1/6K1 w - - 0 1",
)
# White has a knight and a pawn more.
AND_A_PAWN = "6k1/5pp1/8/8/8/8/3N1PPP/6K1 w - - 0 1"


@pytest.mark.parametrize(
    ("fen", "text", "holds"),
    [
        (UNEVEN, "White has a rook and two pawns against a bishop and four pawns.", True),
        (UNEVEN, "Black has a bishop and four pawns for a rook and two pawns.", True),
        (UNEVEN, "White has a rook against a bishop and two pawns.", True),
        (UNEVEN, "White has a rook against a bishop.", True),
        (UNEVEN, "Black has a minor piece for a rook.", True),
        (UNEVEN, "White is the exchange up.", True),
        (UNEVEN, "Black is the exchange up.", False),
        (UNEVEN, "White has a bishop against a rook.", False),
        (UNEVEN, "White has a rook against two bishops.", False),
        (UNEVEN, "White has a rook against a bishop and a pawn.", False),
        (UNEVEN, "White has two pawns against four pawns.", None),
        (UNEVEN, "White has a rook and two pawns against a bishop and two pawns.", False),
        (UNEVEN, "White has a rook and a pawn against a bishop and three pawns.", False),
        (UNEVEN, "White has a rook and three pawns against a bishop and four pawns.", False),
        (UNEVEN, "White is a rook up.", False),
        (UNEVEN, "Black is two pawns up.", False),
        (PIECES, "White has a rook and a bishop against a bishop and a knight.", True),
        (PIECES, "White has a rook against a knight.", True),
        (PIECES, "White has a rook and three pawns against a knight.", True),
        (PIECES, "White has a rook and two pawns against a knight.", False),
        (PIECES, "White has a rook and a bishop against a knight.", False),
        (FOR_ONE, "White is a piece up.", True),
        (FOR_ONE, "White is a knight up.", True),
        (FOR_ONE, "White is a rook up.", False),
        (FOR_ONE, "White is a knight and a pawn up.", False),
        (FOR_ONE, "Black is a pawn up.", False),
        (FOR_THREE, "White is a piece up.", False),
        (FOR_THREE, "White has a knight for three pawns.", True),
        (AND_A_PAWN, "White is a knight up.", True),
        (AND_A_PAWN, "White has an extra knight.", True),
        (AND_A_PAWN, "White is a pawn up.", False),
    ],
)
def test_material_is_told_with_all_pawns_or_none_or_with_what_one_side_has_more(
    fen: str, text: str, holds: bool | None
) -> None:
    assert [claim.true for claim in read(fen, text).claims] == [holds]


MATES = Study(
    "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1",
    (
        StudyLine(Score(mate=1), ("d1d8",)),
        StudyLine(Score(mate=4), ("g2g3",)),
        StudyLine(Score(cp=1500), ("h2h3",)),
        StudyLine(Score(cp=1490), ("h2h4",)),
    ),
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("g3 is a close second.", False),
        ("g3 is just as good.", False),
        ("1.g3 is the best move.", False),
        ("1.g3 is weaker than Rd8#.", True),
        ("Rd8# is better than 1.g3.", True),
        ("1.g3 mates more slowly than Rd8#.", True),
        ("1.h3 takes longer than 1.g3.", False),
        ("1.g3 is better than 1.h3.", True),
        ("1.h3 is as good as 1.h4.", True),
        ("1.g3 turns the tables.", False),
    ],
)
def test_the_nearer_mate_is_better(text: str, holds: bool) -> None:
    assert [claim.true for claim in read(MATES, text).claims] == [holds]


def test_claims_have_their_place() -> None:
    text = "The game is young. It's a rook ending, and White's rook on c1 holds the open c-file!"
    reading = read(ENDING, text)
    assert [sentence.status for sentence in reading.sentences] == ["unread", "claims"]
    ending, file = reading.claims
    assert (text[ending.start : ending.end], ending.true) == ("It's a rook ending", False)
    assert text[file.start : file.end] == file.words == "White's rook on c1 holds the open c-file"
    assert 0 < reading.share_read < 1


def test_the_same_claim_has_the_same_key() -> None:
    claims = read(
        ENDING, "The pawn on d5 is isolated. Black's pawn on d5 is isolated. The pawn on d4 is."
    ).claims
    other = read(ENDING, "The pawn on d4 is isolated.").claims
    assert claims[0].key == claims[1].key != other[0].key


def test_what_cannot_be_read_is_reported_not_guessed() -> None:
    reading = read(ATTACK, "The position smells of danger. White is a pawn up? Candidates.")
    assert [sentence.status for sentence in reading.sentences] == ["unread", "unread", "talk"]
    assert not reading.claims


def test_a_broken_position_is_refused() -> None:
    with pytest.raises(ValueError, match="no position"):
        read("8/8/8 w", "White is better.")


def test_a_study_with_scores_decides_who_is_better() -> None:
    assert Study(ENDING, (StudyLine(Score(cp=500), ("c1c7",)),)).best is not None
    assert Score(mate=3).capped == 1000


@given(st.text(max_size=300))
@settings(max_examples=3 * settings.default.max_examples // 2, deadline=None)
def test_any_text_can_be_read(text: str) -> None:
    for sentence in read(ATTACK, text).sentences:
        assert text[sentence.start : sentence.end] == sentence.words
        for claim in sentence.claims:
            assert text[claim.start : claim.end] == claim.words


_WORDS = (
    *("White", "Black", "is", "are", "has", "the", "a", "pawn", "knight", "rook", "king", "queen", "bishop"),
    *("on", "e4", "f7", "d5", "attacks", "pins", "defends", "and", "but", "which", ",", "it", "that", "to"),
    *("after", "1.e4", "Nf6", "Qxf7#", "5...Kf8", "better", "winning", "isolated", "passed", "open", "mate"),
)


@given(st.integers(0, 1 << 40))
@settings(max_examples=3 * settings.default.max_examples // 2, deadline=None)
def test_chess_words_in_any_order_can_be_read(seed: int) -> None:
    rng = random.Random(seed)
    text = " ".join(rng.choices(_WORDS, k=rng.randint(1, 60))) + rng.choice([".", "!", "?"])
    reading = read(random_board(seed % 50).fen(), text)
    for claim in reading.claims:
        assert text[claim.start : claim.end] == claim.words


def test_reading_is_bounded() -> None:
    """Long sentences full of joints are given up; so is what is beyond the longest text."""
    sentence = "the rook on e1, and " * 25 + "so it goes."
    assert read(chess.STARTING_FEN, sentence).unread
    assert read(chess.STARTING_FEN, "White to move. " * 3000).share_read < 0.6
    assert read(chess.STARTING_FEN, "the knight on g1 and 1.e4 e5 " * 10_000).unread


@pytest.mark.parametrize(
    "part",
    [  # found by search: the most work for each character
        "Nxh5 takes the queen and attacks it, and ",
        "There is mate in one.\n",
    ],
)
def test_a_text_has_a_budget(part: str) -> None:
    """The first sentences of a text that costs much are read, or given up; the last ones are not tried."""
    plain = "White's king is on e1."
    sentence = (part * 600)[:590].rstrip() + "x.\n"
    statuses = [s.status for s in read(ATTACK, f"{plain}\n{sentence * 30}\n{plain}").sentences]
    assert (statuses[0], statuses[-1]) == ("claims", "unread")
    assert read(ATTACK, f"{plain} " * 50).share_read == 1


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("- **White Queen**: h5", True),
        ("- **White Queen**: h4", False),
        ("The white knight is on g5.", True),
        ("The white knight is on g4.", False),
        ("It's White's turn to move.", True),
        ("It's Black's turn to move.", False),
        ("We are white, and it's our turn.", True),
        ("There are no castling rights available for either side.", False),
        ("1. **h5f7**: This involves moving the queen from h5 to f7.", True),
        ("1. `h5f7`: This involves moving the rook from h5 to f7.", False),
        ("2. e1g1 - This involves moving the king to f1.", False),
        ("There is a white knight on g5.", True),
        ("There's a black knight on g5.", False),
        ("'c4f7': This involves capturing the pawn on f7 with the bishop on c4.", True),
        ("White has several possible moves: c4f7, h5f7 and g5f7.", True),
        ("White has several possible moves: c4f7 and h5f8.", False),
        ("White has castled.", False),
        ("We have the queen on h5.", True),
        ("We have the queen on d8.", False),
        ("We have Black's queen on d8.", True),
        ("We have Black's queen on h5.", False),
    ],
)
def test_what_models_say(text: str, holds: bool) -> None:
    reading = read(ATTACK, text)
    assert not reading.unread
    assert reading.claims
    assert bool(reading.false) != holds


@pytest.mark.parametrize(
    "text",
    [
        "To determine the best move for White, let's first analyze the position:",
        "Upon closer inspection...",
        "The task is to determine the best move for White.",
        "1.",
    ],
)
def test_what_models_say_in_passing_is_talk(text: str) -> None:
    assert all(sentence.status == "talk" for sentence in read(ATTACK, text).sentences)


def test_a_name_is_never_passed_over() -> None:
    """What speaks of a piece, a square or a move is read or unread, never talk."""
    for text in ("Let's consider the knight on g5.", "Analyzing Qxf7#.", "Let me look at f7."):
        assert [sentence.status for sentence in read(ATTACK, text).sentences] != ["talk"]


def test_a_board_is_no_sentence() -> None:
    assert read(ATTACK, "8| r . b q k . . r\n7| p p p p . p p p\n  A B C D\n").sentences == ()


# Black's queen on h4 attacks the loose pawn on e4; White's knight on f3 attacks the queen.
SKIRMISH = "rnb1kbnr/pppp1ppp/8/4p3/4P2q/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3"


@pytest.mark.parametrize(
    ("text", "concept", "holds"),
    [
        ("Black threatens Qxe4+.", "threat of a move", True),
        ("Black threatens Qxf2+.", "threat of a move", None),
        ("Black threatens Qxd4.", "threat of a move", False),
        ("Black threatens Qxf2#.", "threat of mate", False),
        ("Nc3 threatens Nd5.", "threatens a move", None),
        ("Nc3 threatens Nxh4.", "threatens a move", True),
        ("Black threatens to take the pawn on e4.", "threat to take", True),
        ("The knight on f3 attacks the queen.", "attack", True),
        ("The bishop attacks the queen.", "attack", None),
        ("White wins a pawn.", "wins material", None),
        ("Nxe5 captures a pawn.", "captures a kind", True),
        ("Nxh4 captures a rook.", "captures a kind", False),
        ("Nxh4 is not a legal move.", "illegal move", False),
        ("f3 to h4 is valid.", "can move", True),
        ("White is up a pawn.", "material ahead", False),
        ("The material count seems roughly equal.", "nearly level material", True),
        ("Black has eight pawns and a queen.", "so many pieces", True),
        ("d4 is occupied by a white pawn.", "occupied square", False),
        ("The knight at f3 controls the center.", "controls the centre", True),
        ("White's rook on h1 stands on the h-file.", "piece on a file", True),
        ("White's rook on h1 stands on the open h-file.", "held open file", False),
        ("The knight on g8 alone defends the queen on h4.", "only defender", False),
        ("The queen on d8 alone defends the pawn on d7.", "only defender", False),
        ("White attacks the queen on h4.", "attack", True),
        ("Black attacks the queen on h4.", "attack", False),
        ("White defends the pawn on d2.", "defence", True),
        ("There's no black knight on f3.", "no such piece", True),
        ("There's no white knight on f3.", "no such piece", False),
        ("The white king is somewhat exposed on e1.", "piece on a square", True),
        ("The white king is somewhat exposed on g1.", "piece on a square", False),
        ("White has developed some pieces.", "developed", True),
        ("White has no castling rights or en passant target squares.", "nothing special to play", False),
        ("For f3h4: this captures a queen.", "captures a kind", True),
        ("Nc3 develops the knight.", "develops", True),
        ("Qe2 develops the queen.", "develops", None),
        ("Qe2 develops a knight.", "develops", False),
    ],
)
def test_plain_claims(text: str, concept: str, holds: bool | None) -> None:
    (claim,) = read(SKIRMISH, text).claims
    assert (claim.concept, claim.true) == (concept, holds)


def test_a_claim_stands_beside_what_is_not_read() -> None:
    text = "The knight on f3 attacks the queen on h4, which feels uncomfortable."
    (sentence,) = read(SKIRMISH, text).sentences
    assert sentence.status == "partly"
    assert [(claim.words, claim.true) for claim in sentence.claims] == [(text[:40], True)]
    for doubted in ("Nxh4 is a legal move, but only if nobody looks.", "If it rains, White is a pawn up."):
        assert not read(SKIRMISH, doubted).claims


PINS = "rn1qkbnr/ppp2ppp/3p4/4p3/2B1P1b1/5N2/PPPP1PPP/RNBQK2R w KQkq - 2 4"


@pytest.mark.parametrize(("behind", "holds"), [("queen", True), ("king", False)])
def test_what_stands_behind_a_pinned_piece_is_of_its_side(behind: str, holds: bool) -> None:
    (claim,) = read(PINS, f"Black's bishop on g4 pins the knight on f3 to the {behind}.").claims
    assert claim.true is holds


def test_what_a_fen_says_is_said_of_the_position_or_after_the_move() -> None:
    assert read(SKIRMISH, "Nd4 involves moving the knight from f3 to d4; d4 is empty.").sound
    assert read(SKIRMISH, "Nd4 involves moving the knight from f3 to d4; d4 is occupied.").sound


def test_the_second_of_two_targets_is_no_claim_of_its_own() -> None:
    reading = read("r3k3/8/8/3N4/8/8/8/4K3 w - - 0 1", "With Nc7+, White forks the king and the rook on a8.")
    assert [(claim.concept, claim.true) for claim in reading.claims][-1] == ("forks", True)
    assert reading.sound


@pytest.mark.parametrize(
    ("fen", "text", "holds"),
    [
        (chess.STARTING_FEN, "White can castle kingside.", False),
        (chess.STARTING_FEN, "White can castle now.", False),
        (chess.STARTING_FEN, "White can still castle kingside.", True),
        (chess.STARTING_FEN, "White can still castle long.", True),
        (chess.STARTING_FEN, "White cannot castle.", True),
        (chess.STARTING_FEN, "White cannot castle any more.", False),
        (chess.STARTING_FEN, "Black has the right to castle on both sides.", True),
        (ATTACK, "White can castle kingside.", True),
        (ATTACK, "White can castle short next move.", True),
        (ATTACK, "Black can castle kingside.", True),
        (ATTACK, "White can castle queenside.", False),
        (ATTACK, "White is ready to castle.", True),
        (ATTACK, "White cannot castle.", False),
        ("4k3/8/8/8/8/8/8/4K2R w K - 0 1", "White has the right to castle.", True),
        ("4k3/8/8/8/8/8/8/4K2R w K - 0 1", "White has the right to castle on both sides.", False),
        ("4kr2/8/8/8/8/8/8/4K2R w K - 0 1", "White can castle kingside.", False),
        ("4k3/8/8/8/B7/8/8/4K2R b K - 0 1", "White can castle kingside.", True),
        (chess.STARTING_FEN, "White cannot castle yet.", None),
        (ATTACK, "White can castle soon.", None),
    ],
)
def test_to_castle_now_is_not_the_right_to_castle(fen: str, text: str, holds: bool | None) -> None:
    (claim,) = read(fen, text).claims
    assert claim.true is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("White threatens Qxf7#.", True),
        ("White threatens mate with Qxf7#.", True),
        ("Black threatens mate with Nxh5.", False),
        ("White threatens mate with Nxf7.", False),
    ],
)
def test_the_side_to_move_may_threaten_mate(text: str, holds: bool) -> None:
    (claim,) = read(ATTACK, text).claims
    assert (claim.concept, claim.true) == ("threat of mate", holds)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("The queen is attacked by the queen on d3 and defended only by the knight on f6.", True),
        ("The queen is attacked by the queen on d3 and defended only by the bishop on c2.", False),
        ("Only the knight on f6 defends the queen, and the queen on d3 attacks it.", True),
        (
            "The queen on e4 is attacked by the queen on d3 and defended only by the knight on f6. "
            "Only the queen stands between White's bishop on c2 and Black's queen.",
            True,
        ),
    ],
)
def test_a_name_handed_on_keeps_its_piece(text: str, holds: bool) -> None:
    fen = "r1b2rk1/1pp2pp1/p1np1n1p/8/3Pq3/B1PQ1N1P/P1B2PP1/R4RK1 b - - 1 14"
    reading = read(fen, f"The knight on f6 defends Black's queen on e4. {text}")
    assert not reading.unread
    assert reading.sound is holds


# White's rook is behind the only passed pawn, on b5; Black's stands beside it.
PASSER = "8/5pk1/6p1/1P1r3p/5P1P/6P1/5K2/1R6 w - - 0 40"
KING_BETWEEN = "8/5pk1/6p1/1P1r3p/1K3P1P/6P1/8/1R6 w - - 0 40"
ROOK_BEFORE = "1r6/5pk1/6p1/1P5p/5P1P/6P1/5K2/8 w - - 0 40"
ROOK_FOR_PAWNS = "4k3/ppp5/8/8/8/8/8/R3K3 w - - 0 1"
BATTERY = "4k3/8/8/3p4/8/8/3R4/3RK3 w - - 0 1"
BACK_RANK = "6k1/5ppp/8/8/8/8/5PPP/R5K1 w - - 0 1"


@pytest.mark.parametrize(
    ("fen", "text", "concept", "holds"),
    [
        (PASSER, "White has a passed pawn.", "some passed pawn", True),
        (PASSER, "Black has a passed pawn now.", "some passed pawn", False),
        (ATTACK, "White threatens mate.", "threat of mate", True),
        (ATTACK, "Black threatens checkmate.", "threat of mate", False),
        (ATTACK, "White threatens checkmate on f7.", "threat of mate", True),
        (ATTACK, "White threatens mate on g7.", "threat of mate", False),
        (ATTACK, "The queen on h5 threatens mate on f7.", "threat of mate", True),
        (ATTACK, "The bishop on c4 threatens mate.", "threat of mate", False),
        (ATTACK, "White threatens checkmate with Bxf7+.", "threat of mate", False),
        (BACK_RANK, "Rd1 threatens mate.", "threatens mate", True),
        (BACK_RANK, "Rd1 threatens checkmate on d8.", "threatens mate", True),
        (BACK_RANK, "Rd1 threatens mate on a8.", "threatens mate", False),
        (BACK_RANK, "Rd1 threatens checkmate with Rd8#.", "threatens mate", True),
        (BACK_RANK, "Rf1 threatens mate next move.", "threatens mate", False),
        ("k7/2K5/8/8/8/8/8/1Q6 w - - 0 1", "Qb6 threatens mate.", "threatens mate", False),  # stalemate
        (PASSER, "The b-file is half-open for Black.", "half-open file", True),
        (PASSER, "The b-file is half-open for White.", "half-open file", False),
        (PASSER, "The b-file is semi-open.", "half-open file", True),
        (PASSER, "The d-file is half-open.", "half-open file", False),
        (PASSER, "Black has the half open b-file.", "half-open file", True),
        (PASSER, "White has the half-open b-file.", "half-open file", False),
        (ATTACK, "The knight on g5 is defended once.", "counted contacts", True),
        (ATTACK, "The knight on g5 is defended twice.", "counted contacts", False),
        (ATTACK, "The pawn on f7 is attacked three times.", "counted contacts", True),
        (ATTACK, "The pawn on f7 is protected only once.", "counted contacts", True),
        (ATTACK, "The knight is defended twice.", "counted contacts", None),
        (ATTACK, "White's king is attacked no times.", "counted contacts", None),
        (BATTERY, "The pawn on d5 is attacked twice.", "counted contacts", None),
        (BATTERY, "The pawn on d5 is attacked three times.", "counted contacts", False),
        (BATTERY, "The pawn on d5 is attacked once.", "counted contacts", True),
        (ATTACK, "The pawn on f7 is attacked three times but only defended once.", "pressed piece", True),
        (ATTACK, "The pawn on f7 is attacked twice but only defended once.", "pressed piece", False),
        (PASSER, "White's rook is behind the passed pawn.", "behind a passed pawn", True),
        (PASSER, "Black's rook is behind the passed pawn on b5.", "behind a passed pawn", False),
        (PASSER, "White's rook is behind the passed pawn on g3.", "behind a passed pawn", False),
        (PASSER, "White has a rook behind the passed pawn.", "behind a passed pawn", True),
        (PASSER, "Black has a rook behind the passed pawn.", "behind a passed pawn", False),
        (PASSER, "Rb4 puts the rook behind the passed pawn.", "goes behind a passed pawn", True),
        (PASSER, "Rb4 puts the rook behind the pawn on f4.", "goes behind a passed pawn", None),
        (PASSER, "Re1 puts the rook behind the passed pawn.", "goes behind a passed pawn", False),
        (KING_BETWEEN, "The rook on b1 is behind the passed pawn.", "behind a passed pawn", None),
        (ROOK_BEFORE, "The rook is behind the passed pawn.", "behind a passed pawn", False),
        (ATTACK, "White has more pieces.", "more of a kind", True),
        (ATTACK, "White has fewer pieces than Black.", "more of a kind", False),
        (SKIRMISH, "White has more pieces.", "more of a kind", False),
        (ROOK_FOR_PAWNS, "White has more pieces.", "more of a kind", None),
        (ROOK_FOR_PAWNS, "Black has three more pawns than White.", "more of a kind", True),
        (ROOK_FOR_PAWNS, "Black has one more pawn.", "more of a kind", False),
        (ROOK_FOR_PAWNS, "White has no more pawns.", "more of a kind", None),
    ],
)
def test_frequent_sentences_of_policies(fen: str, text: str, concept: str, holds: bool | None) -> None:
    reading = read(fen, text)
    assert not reading.unread
    assert [(claim.concept, claim.true) for claim in reading.claims] == [(concept, holds)]


@pytest.mark.parametrize(
    "text",
    [
        "White may have a passed pawn.",
        "White will have a passed pawn.",
        "White can threaten mate.",
        "The b-file will be half-open for Black.",
        "White has a potential passed pawn.",
        "White threatens mate in two.",
        "If the queen moves, White threatens mate.",
        "White's rook belongs behind the passed pawn.",
        "White has more active pieces.",
    ],
)
def test_what_is_like_them_is_not_guessed(text: str) -> None:
    assert not read(PASSER, text).claims


@pytest.mark.parametrize(
    ("fen", "text", "holds"),
    [
        (ENDING, "White has isolated pawns on d4 and d4.", False),
        (ENDING, "The c- and c-files are open.", False),
        (ENDING, "The candidates are Rc7, Rc8# and Rc7.", False),
        (ENDING, "The candidates are Rc7 and Rc8#.", True),
        (ENDING, "There are 24 legal moves.", True),
        (ENDING, "There are 25 legal moves.", False),
    ],
)
def test_nothing_is_named_twice(fen: str, text: str, holds: bool) -> None:
    """A list names each thing once; what is counted is counted exactly."""
    assert [claim.true for claim in read(fen, text).claims] == [holds]


def test_a_threat_of_mate_keeps_its_move() -> None:
    for reply, holds in (("Rd8#", True), ("Rb1", False)):
        claims = read(BACK_RANK, f"There is Rd1, which threatens mate with {reply}.").claims
        assert [claim.true for claim in claims if claim.concept == "threatens mate"] == [holds]
        assert len(claims) == 2


# White: Kg1, Rf1, Nf3, Bc4, pawns; Black: Ke8, Nc6, Nf6, Bc5. White is to move.
ITALIAN = "r1bqk2r/pppp1ppp/2n2n2/2b1p3/2B1P3/2N2N2/PPPP1PPP/R1BQ1RK1 w kq - 0 6"


@pytest.mark.parametrize(
    ("text", "concept", "holds"),
    [
        # Pieces that are named with their squares, whatever is said of them.
        ("Somehow Black's knight on f6 feels misplaced to me.", "named piece", True),
        ("Somehow Black's knight on f5 feels misplaced to me.", "named piece", False),
        ("Overall the Knight (f3) is a wonderful animal.", "named piece", True),
        ("Overall the Knight (f4) is a wonderful animal.", "named piece", False),
        ("To determine what comes next for the white rook at f1, we look at its rules.", "named piece", True),
        ("Their bishop on c5 smells of danger.", "named piece", True),
        (
            "Notably, our king looks rather exposed on g1, whatever that means here.",
            "piece on a square",
            True,
        ),
        (
            "Notably, our king looks rather exposed on h1, whatever that means here.",
            "piece on a square",
            False,
        ),
        ("Row 6: Black Knight on c6 waits patiently.", None, True),
        ("White has moved their knight to c3, it seems to everybody.", "piece on a square", True),
        # Lists of pieces.
        ("White: King on g1, Rook (f1), pawns a2, d2", None, True),
        ("White: King on g1, Rook (f2), pawns a2, d2", None, False),
        ("White: King g1, Rook f1, pawns a2, d3", None, False),
        ("Row 6: Black Knight on c6, Black Bishop on f6", None, False),
        # Contacts, beside an opinion.
        ("Black's knight on f6 is well placed and attacks the pawn on e4.", "attack", True),
        ("Black's knight on f6 is well placed and attacks the pawn on d2.", "attack", False),
        ("The knight on f3 looks fine, and controls several important squares like d4 and e5.", None, True),
        ("The knight on f3 looks fine, and controls several important squares like d5 and e5.", None, False),
        # Squares.
        ("Moving there is tempting because d4 is currently vacant somehow.", "no such piece", True),
        ("Moving there is tempting because e4 is currently vacant somehow.", "no such piece", False),
        ("I see that e5 is occupied by a black pawn, sadly so.", "occupied square", True),
        ("I see that e5 is occupied by a white pawn, sadly so.", "occupied square", False),
        # Moves.
        ("1. **f3g5**: This involves moving the knight towards the kingside.", "moves a piece", True),
        ("1. **f3g5**: This involves moving the bishop towards the kingside.", "moves a piece", False),
        ("2. `c4f7` - Captures the pawn on f7 out of pure spite.", "captures", True),
        ("2. `c4f7` - Captures the knight on f7 out of pure spite.", "captures", False),
        ("- f3 -> d4", "named way", True),
        ("- f3->d4", "named way", True),
        ("- `h2h3`", "named move", True),
        ("There is a case for Nd5 somehow.", "named move", True),
        ("The overprotection of Pe4 by Nc3 is nice.", "named move", True),
    ],
)
def test_what_can_be_checked_is_read_in_a_sentence_that_is_not(
    text: str, concept: str | None, holds: bool
) -> None:
    claims = read(ITALIAN, text).claims
    judged = [claim.true for claim in claims if concept in (None, claim.concept)]
    assert judged, claims
    assert all(judged) is holds


@pytest.mark.parametrize(
    "text",
    [
        "If the knight on f5 were real, things would differ.",
        "There is hardly a better place than a knight on d5 for us.",
        "We miss a bishop on b5 here, there is no rook on d1 and no knight on f5 either.",
        "Placing the knight on d5 feels right.",
        "Moving the bishop to b5 is the idea; the bishop on b5 then pins the knight.",
        "Perhaps Nd5 works, and afterwards the knight on d5 attacks the queen on d8 in some lines.",
        "The square before the pawn (f6) is something else.",
        "Could the knight on f5 be trapped?",
        "Some way leads from f3 to f5 maybe.",
        "It attacks d7 in spirit.",
        "2. e5 - Capturing a pawn",
        "This looks feasible as long as there's nothing on e5 or d7 that bites.",
        "f1e1: A move that puts it on e8, activating the rook.",
        "c3b5: Developing the knight further.",
        "The plan g4 followed by h4 and Kg2 has merit.",
        "f3f5 isn't possible, although f3d4 could be blocked.",
        "Nothing but opinions: a lovely, active, harmonious, promising position.",
    ],
)
def test_what_is_ambiguous_is_never_false(text: str) -> None:
    assert read(ITALIAN, text).false == ()


# White: Kg1, Nc3, Nf3, Bc4, Ra1, Rf1, pawns c2, d3, e4, f2; Black: Kg8, Nc6, Nf6, Bc5, Qd8, pawns e5, f7.
QUIET = "r1bq1rk1/ppp2ppp/2np1n2/2b1p3/2B1P3/2NP1N2/PPP2PPP/R1BQ1RK1 w - - 0 7"
# Berlin: White's e-, f-, g- and h-pawns face three; the e-pawn is blocked.
BERLIN = "r1b1k2r/ppp1bppp/2p3n1/4P1B1/8/2N2N1P/PPP2PP1/3R1RK1 w - - 5 13"
# A knight that no pawn defends, on d5 before the backward pawn on d6.
SICILIAN = "r1bq1rk1/pp3ppp/2np1n2/3Np3/4P3/1B6/PPP2PPP/R2Q1RK1 w - - 0 1"
# Black's knight on e7 is pinned, the pawns on e4 and e5 are blocked, a2 is free.
FIXED = "4k3/4n3/8/4p3/4P3/1N6/P7/R3R1K1 w - - 0 1"
BARE = "4k3/pp3ppp/8/3N4/4K3/8/PP3PPP/8 w - - 0 1"
# White can castle, and has Nb1, Bc1, and a pawn on d2, at home.
FOUR = "r1bqk1nr/pppp1ppp/2n5/2b1p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4"


@pytest.mark.parametrize(
    ("fen", "text"),
    [
        # What walks is somewhere else in the next clause.
        (QUIET, "The knight on c3 goes to d5, attacking the knight on f6."),
        (QUIET, "The knight on c3 jumps to d5 and attacks the knight on f6."),
        (QUIET, "The knight on c3 can go to d5, attacking the knight on f6."),
        (QUIET, "The knight on c3 can jump to d5, where it attacks the knight on f6."),
        (QUIET, "The knight on c3 can go to d5. The knight on d5 attacks the knight on f6."),
        (QUIET, "Nd5 follows. The knight on d5 attacks the knight on f6."),
        (FOUR, "White's knight on b1 moves to c3, protecting the pawn on e4."),
        (FOUR, "The knight on b1 can go to c3 and defends the pawn on e4."),
        (QUIET, "The knight on c3 attacks the knight on f6 from d5."),
        (QUIET, "The knight on c3 attacks the knight on f6 via d5."),
        (QUIET, "From d5, the knight on c3 attacks the knight on f6."),
        (QUIET, "With a bishop on g5, the knight on f6 is pinned."),
        (QUIET, "When the bishop is on g5, the knight on f6 is pinned."),
        (QUIET, "The knight on f3 takes the pawn on e5, attacking the knight on c6."),
        (QUIET, "The knight on c3 leaves c3, so the pawn on e4 is undefended."),
        (QUIET, "Black replies Na5, attacking the bishop on c4."),
        (QUIET, "Na5 attacks the bishop on c4."),
        # Groups, and clauses with more subjects than one.
        (QUIET, "The kings on g1 and g8 are safe."),
        (FOUR, "The bishops on c4 and c5 are both developed."),
        (FOUR, "The pawns on e4 and e5 block each other."),
        (FOUR, "White and Black have bishops on c4 and c5."),
        (QUIET, "White's and Black's knights on f3 and f6 are developed."),
        (QUIET, "The knight on c3 and the knight on f3 are busy, and control the squares d5 and e5."),
        (FOUR, "The rook on a1 and the rook on h1 are both still undeveloped."),
        # What is denied.
        (QUIET, "It is false that the knight on f6 attacks the pawn on d3."),
        (QUIET, "I deny that the knight on f6 attacks the pawn on d3."),
        (QUIET, "The claim that the knight on c3 attacks the knight on f6 is false."),
        (QUIET, "The knight on c3 attacks the knight on f6, but that's a mistake."),
        (QUIET, "Some claim that the knight on c3 attacks the knight on f6."),
        # Castling, and what would be.
        (FOUR, "O-O castles, moving the rook to f1."),
        (FOUR, "The move O-O brings the rook to f1 and the king to g1."),
        (FOUR, "O-O places the king on g1 and the rook on f1."),
        (FOUR, "O-O moves the king two squares and moves the rook on h1 to f1."),
        (FOUR, "O-O activates the rook on h1."),
        (FOUR, "O-O brings the king to safety."),
        (FOUR, "Castling kingside puts the king on g1 and the rook on f1."),
        (FOUR, "Nc3 blocks nothing and castling follows."),
        (FOUR, "The pawn on d3 would support the pawn on e4."),
        (QUIET, "A knight on d5 is strong."),
        (QUIET, "A knight on d5 attacks the knight on f6."),
        (QUIET, "Putting a rook on e1 defends the pawn on e4."),
        (FOUR, "h3 stops a bishop on g4."),
        # What "it" is after several names.
        (FOUR, "The f2 square is weak: the bishop on c5 attacks it."),
        (FOUR, "Bd5 attacks the knight on c6, and Bb5 attacks it too."),
        (QUIET, "Bd5 attacks the knight on c6, but the pawn on b7 protects it."),
        (QUIET, "Nxe5 takes the pawn on e5, but the knight on c6 and the pawn on d6 protect it."),
        (QUIET, "The bishop on c4 attacks the pawn on f7, but the rook on f8 protects it."),
        # Pieces named by the squares that they leave, and words of another meaning.
        (FOUR, "Nc3 develops the knight on b1."),
        (FOUR, "Nc3 improves the knight on b1."),
        (FOUR, "d3 pushes the pawn."),
        (FOUR, "d4 advances the pawn on d2."),
        (FOUR, "The pawn on d2 blocks the bishop on c1."),
        (QUIET, "d4 blocks the bishop on c5."),
        (QUIET, "Be3 challenges the bishop on c5."),
        (QUIET, "Re1 places the rook on the e-file."),
        (QUIET, "Na4 trades the knight on a4 for the bishop on c5."),
        (QUIET, "Nxe5 captures the pawn on e5, which is defended by the knight on c6."),
        (QUIET, "h3 prevents Bg4."),
        (QUIET, "Nd5 wins the knight on f6."),
        (QUIET, "Nd5 wins a knight."),
        # The past.
        (QUIET, "White's king was on e1."),
        (QUIET, "The f-file was open, and Black was in check."),
        (QUIET, "The threat was Nxf6+."),
        # Lines of moves, with a blank behind the number or with marks.
        (QUIET, "After 7. Nxe5 Nxe5 8. Nd5 c6 9. Nxf6+ is check."),
        (QUIET, "7. Bxf7+! Rxf7 8. Ng5 Rf8 9. Ne6 attacks the queen on d8."),
        (QUIET, "7.Bg5 h6 8.Bh4 pins the knight on f6."),
        (QUIET, "Later, 12. Nd5 attacks the knight on f6."),
        (QUIET, "It means exchanging knights and queens."),
        # Words that others use in a wider sense.
        (BERLIN, "White has the kingside pawn majority."),
        (BERLIN, "White has four pawns against three on the kingside."),
        (BERLIN, "White's rook on d1 and Black's rook on h8 face each other."),
        (SICILIAN, "Black has a backward pawn on d6."),
        (SICILIAN, "The knight on d5 blockades the pawn on d6."),
        (FIXED, "The pawn on e4 cannot move."),
        (FIXED, "White's rooks are connected."),
        (BARE, "The knight on d5 cannot be driven away by pawns."),
        (BARE, "White's king stands in the middle of the board."),
        ("6k1/6pp/8/8/8/8/6PP/R3R1K1 w - - 0 1", "White's rooks are connected."),
        ("2r3k1/5ppp/8/8/8/8/5PPP/3RR1K1 w - - 0 1", "Black's back rank is weak."),
        ("2r3k1/5ppp/8/3b4/8/8/5PPP/2RR2K1 w - - 0 1", "White has two rooks for a rook and bishop."),
        (chess.STARTING_FEN, "White has the bishop pair."),
    ],
)
def test_a_true_sentence_is_never_false(fen: str, text: str) -> None:
    assert read(fen, text).false == ()


@pytest.mark.parametrize(
    ("fen", "text"),
    [
        (QUIET, "The knight on d5 attacks the knight on f6."),
        (QUIET, "The squares are d5 and e5. The knight on d5 attacks the knight on f6."),
        (QUIET, "The knights on c3 and f4 are developed."),
        (QUIET, "White has a knight on d5."),
        (QUIET, "There is a knight on d5."),
        (QUIET, "The knight on c3 attacks the pawn on e5, and more."),
        (FOUR, "O-O moves the bishop to f1."),
        (FOUR, "Nc3 pushes the pawn."),
        (FOUR, "d3 pushes the passed pawn."),
        (FOUR, "Nc3 castles short."),
        (QUIET, "The knight on f3 blocks the pawn on e5."),
        (FIXED, "The pawn on a2 cannot move."),
        (FIXED, "The rook on e1 cannot move."),
        (QUIET, "h3 prevents ...Nh5."),
        (QUIET, "Nxe5 wins the knight on c6."),
        (QUIET, "Nd5 grabs the pawn on e5."),
        (BARE, "Black has a kingside majority."),
        (QUIET, "The knight on c3 cannot be driven away by pawns."),
    ],
)
def test_what_is_like_them_and_false_stays_false(fen: str, text: str) -> None:
    assert read(fen, text).false


@pytest.mark.parametrize(
    "text",
    [
        "A knight on f3 attacks a pawn on e5.",
        "A knight on f3 attacks the pawn on e5.",
    ],
)
def test_a_guess_that_costs_nothing_earns_nothing(text: str) -> None:
    assert not [c for c in read(QUIET, text).claims if c.concept == "attack" and c.true is not None]


@pytest.mark.parametrize("verb", ["attacks", "would attack"])
def test_naming_squares_first_opens_true_claims_like_false_ones(verb: str) -> None:
    """So nobody earns by listing all squares and then saying whatever comes to mind."""
    text = f"Squares {' '.join(chess.SQUARE_NAMES)}.\n"
    for target, true in (("e5", True), ("d6", False)):
        claim = f"The knight on f3 attacks the pawn on {target} x."
        assert [c.true for c in read(QUIET, claim).claims if c.concept == "attack"] == [true]
        named = read(QUIET, text + claim.replace("attacks", verb)).claims
        assert not [c for c in named if c.concept == "attack" and c.true is not None]


@pytest.mark.parametrize(
    "text",
    [
        "Bg5 pins the knight on f6 and the queen on d8 is tied down somewhat awkwardly. "
        "The knight on f6 is pinned.",
        "7. Nd5 attacks the knight on f6. Then the queen on d1 supports it nicely and quietly. "
        "The knight on d5 is defended by the bishop on c4.",
    ],
)
def test_a_sentence_read_in_part_leaves_the_position_of_the_text(text: str) -> None:
    reading = read(QUIET, text)
    assert reading.false == ()
    assert reading.sentences[-1].claims[-1].true


def test_a_piece_that_is_said_to_be_absent_is_not_read_as_one_that_stands_there() -> None:
    assert not read(ITALIAN, "Sadly the knight on f6 is not there yet, they say.").claims


def test_a_move_that_is_denied_is_not_read_as_one_that_can_be_played() -> None:
    for text in ("Somehow h2h3 isn't really possible in spirit.", "White has played h2-h3, they told me."):
        assert not [claim for claim in read(ITALIAN, text).claims if claim.concept == "named move"]


@pytest.mark.parametrize(
    ("fen", "move", "text", "holds"),
    [
        (chess.STARTING_FEN, "e2e4", "Controls d5 and f5.", [True]),
        (chess.STARTING_FEN, "e2e4", "Controls d5 and g5.", [False]),
        (chess.STARTING_FEN, "g1f3", "Develops a knight and controls e5.", [True, True]),
        (chess.STARTING_FEN, "g1f3", "White develops the knight.", [True]),
        (chess.STARTING_FEN, "g1f3", "Black develops the knight.", []),
        (ITALIAN, "c4f7", "Attacks the king on e8.", [True]),
        (ITALIAN, "c4f7", "Attacks the pawn on e5.", [False]),
        (ITALIAN, "c4f7", "Attacks nothing much.", []),
        (AMID, "c4d5", "White recaptures.", [True]),
    ],
)
def test_a_comment_without_a_subject_is_about_the_move(
    fen: str, move: str, text: str, holds: list[bool]
) -> None:
    study = Study(fen, last="e6d5")
    assert [c.true for c in read(study, text, about=chess.Move.from_uci(move)).claims] == holds
    assert not [c for c in read(study, text).claims if c.true is False and c.concept != "recaptures"]


def test_a_text_of_opinions_has_no_claims_that_are_true() -> None:
    text = "White is active and harmonious. The initiative feels pleasant. I would be happy here."
    assert not [claim for claim in read(ITALIAN, text).claims if claim.true is not None]
