"""The words: true whatever the lines, varied, the same for the same seed, as long as was asked for."""

import random
import re
from collections import Counter

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.errors import InvalidInput
from rookery.trace import Evaluation
from rookery.uci import Line
from services.data.annotate.case import Case
from services.data.annotate.claims.checker import check
from services.data.annotate.claims.forms import GRAMMAR
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sentence import Parser
from services.data.annotate.claims.wording import TALK, WORDING
from services.data.annotate.compose import LENGTHS, Manner, draft
from services.data.annotate.facts import survey
from services.data.annotate.ideas import ideas_of
from services.data.annotate.ideas.defence import StopsThreat
from services.data.annotate.play import Play, Swing, at_rest
from services.data.annotate.smell import smell
from services.data.annotate.step import Step
from services.data.annotate.study import Study
from services.data.annotate.voice import VOICES, Length, write
from services.data.annotate.voice.maxims import MAXIMS
from services.data.annotate.voice.pen import Pen, finite, infinitive, numbered, participle
from services.data.annotate.voice.prose import join_clauses, sentence
from services.data.annotate.voice.wordings import FACTS, IDEAS
from tests.unit.data.annot_studies import MOVES, plain_study, random_study

RARE = (
    "1r3rk1/5ppp/8/8/8/8/QR3PPP/6K1 b - - 0 1",  # a weak back rank
    "8/8/4k3/8/4K3/8/4P3/8 w - - 0 1",  # the opposition
    "4q3/8/4k3/8/8/8/8/4RK2 b - - 0 1",  # a skewer, and check
    "4k3/8/8/p1p1p1p1/P1P1P1P1/8/8/4KB2 w - - 0 1",  # a bad bishop
    "4k3/2b2p2/8/8/8/8/2B2P2/4K3 w - - 0 1",  # opposite bishops
    "4k3/8/1p6/8/2p5/1PN5/8/4K1n1 w - - 0 1",
    "3k4/8/3r4/8/8/5b2/8/3K4 w - - 0 1",  # double check
    "4k3/pp6/8/8/8/8/5PPP/4K3 w - - 0 1",  # majorities
    "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1",  # mate in one
    "6k1/5ppp/8/8/8/8/5PPP/3R2K1 b - - 0 1",  # and threatened
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "4k3/8/8/8/1Pp5/B1P5/NR6/1K6 w - - 0 1",  # pieces without moves
    "r3k2r/pp3ppp/2n5/3pp3/8/2N5/PPP2PPP/R3K2R w KQkq - 0 12",
    "4k3/8/8/8/8/4P3/1P1P1PP1/2B1K3 w - - 0 1",  # a bishop hemmed in
    "4k3/8/8/3PP3/8/8/8/4K3 w - - 0 1",  # connected passers
    "r5k1/pp3ppp/8/8/2r5/8/PP3PPP/2RR2K1 w - - 0 20",  # one open file, two
)


@given(st.integers(0, 1 << 40))
@settings(max_examples=40)
def test_every_text_is_read_back_whole_and_true(seed: int) -> None:
    study = random_study(seed)
    answer, report = draft(study, Manner(seed=seed), id_="any")
    assert report.unread == []
    assert report.false == []
    assert report.claims >= 3
    assert answer.count("\\boxed{") == 1


@pytest.mark.parametrize("fen", RARE)
def test_every_wording_of_a_fact_is_true(fen: str) -> None:
    board = chess.Board(fen)
    for number in range(12):
        voice = list(VOICES.values())[number % 4]
        pen = Pen(board, voice, Length.of("long"), random.Random(number))
        for fact in survey(board):
            pen.forget()
            text = sentence(FACTS[type(fact)](pen, board, fact))
            _holds(text, board)


def _holds(text: str, board: chess.Board) -> None:
    scene = Scene(plain_study(board), "", board)
    clauses = Parser(GRAMMAR, WORDING).clauses(text)
    assert clauses, f"{text!r} cannot be read"
    assert all(clause.holds(scene) for clause in clauses), f"{text!r} is false in {board.fen()!r}"


@pytest.mark.parametrize(("fen", "san"), MOVES, ids=[san for _, san in MOVES])
def test_every_wording_of_an_idea_is_true(fen: str, san: str) -> None:
    board = chess.Board(fen)
    step = Step.of(board, board.parse_san(san))
    shown = numbered(board, [step.move])
    for number in range(16):
        pen = Pen(board, list(VOICES.values())[number % 4], Length.of("long"), random.Random(number))
        for idea in ideas_of(step):
            pen.moved(step.after, step.target)
            _holds(sentence(f"{shown} {finite(IDEAS[type(idea)](pen, step, idea))}"), board)


def test_every_idea_is_shown_by_some_move() -> None:
    shown = set()
    for fen, san in MOVES:
        board = chess.Board(fen)
        shown |= {type(idea) for idea in ideas_of(Step.of(board, board.parse_san(san)))}
    assert set(IDEAS) - shown == {StopsThreat}


@pytest.mark.parametrize(
    ("fen", "san", "threat"),
    [
        ("4r1k1/pq3p1p/2p1r1p1/2Q1p3/3nN1P1/1P6/P1P2P1P/3RR1K1 w - - 0 1", "Kg2", "d4f3"),
        ("4r1k1/8/8/8/8/8/2B5/6K1 w - - 0 1", "Be4", "e8e1"),
        ("6k1/2b5/8/8/4P3/8/8/4R1K1 b - - 0 1", "Be5", "e4e5"),
    ],
)
def test_a_threat_that_is_met_is_named_truly(fen: str, san: str, threat: str) -> None:
    board = chess.Board(fen)
    step = Step.of(board, board.parse_san(san))
    (idea,) = (i for i in ideas_of(step, threat=chess.Move.from_uci(threat)) if isinstance(i, StopsThreat))
    for number in range(8):
        pen = Pen(board, VOICES["annotator"], Length.of("long"), random.Random(number))
        words = finite(IDEAS[StopsThreat](pen, step, idea))
        _holds(sentence(f"{numbered(board, [step.move])} {words}"), board)


def test_the_seed_decides_every_word() -> None:
    case = Case.of(random_study(3))
    voice = VOICES["coach"]
    texts = {write(case, voice=voice, length=Length.of("medium"), seed=str(n % 5)) for n in range(10)}
    assert len(texts) == 5


@pytest.mark.parametrize("voice", sorted(VOICES))
def test_voices_keep_their_person(voice: str) -> None:
    persons = Counter()
    for seed in range(25):
        case = Case.of(random_study(seed))
        thinking, _ = write(case, voice=VOICES[voice], length=Length.of("long"), seed=str(seed))
        words = thinking.replace("I'm", "I am").split()
        persons.update(word for word in words if word in ("I", "we", "We", "our", "Our", "my", "My"))
    first, plural = persons["I"] + persons["my"], persons["we"] + persons["our"]
    assert (first > 10) == (voice == "calculator")
    assert (plural > 10) == (voice == "coach")


def test_longer_texts_are_longer() -> None:
    words = dict.fromkeys(LENGTHS, 0)
    for seed in range(20):
        case = Case.of(random_study(seed))
        for length in LENGTHS:
            thinking, _ = write(case, voice=VOICES["annotator"], length=Length.of(length), seed=str(seed))
            words[length] += len(thinking.split())
    assert words["short"] * 1.3 < words["medium"] < words["long"] / 1.1


def test_lengths_by_tokens() -> None:
    assert Length.of(330) == Length.of("medium")
    assert Length.of(60).facts == 1
    for wrong in ("huge", 12, 5000):
        with pytest.raises(InvalidInput):
            Length.of(wrong)


def test_no_opening_is_fixed_and_no_phrase_rules() -> None:
    texts = []
    for seed in range(120):
        thinking, _ = write(
            Case.of(random_study(seed)),
            voice=VOICES[sorted(VOICES)[seed % 4]],
            length=Length.of(LENGTHS[seed % 3]),
            seed=str(seed),
        )
        texts.append(thinking)
    starts = Counter(" ".join(text.split()[:3]) for text in texts)
    assert starts.most_common(1)[0][1] < 12
    assert smell(texts, masked=False).commonest[0][1] < 0.003


@pytest.mark.parametrize("fen", ["7k/8/8/8/8/8/1q6/K7 w - - 0 1", "4k3/8/8/8/8/8/4r3/4K3 w - - 0 1"])
def test_a_check_is_spoken_of(fen: str) -> None:
    board = chess.Board(fen)
    pen = Pen(board, VOICES["annotator"], Length.of("long"), random.Random(1))
    said = [FACTS[type(fact)](pen, board, fact) for fact in survey(board) if type(fact).__name__ == "Checked"]
    assert said
    assert "check" in said[0]


def test_verb_phrases_take_every_form() -> None:
    marked = "~parry the threat, ~hit f7 and ~tie the rook"
    assert finite(marked) == "parries the threat, hits f7 and ties the rook"
    assert infinitive(marked) == "parry the threat, hit f7 and tie the rook"
    assert participle(marked) == "parrying the threat, hitting f7 and tying the rook"


def test_lines_are_numbered_from_either_side() -> None:
    board = chess.Board("4k3/8/8/8/8/8/4P3/4K3 b - - 0 7")
    moves = [chess.Move.from_uci(uci) for uci in ("e8e7", "e2e4", "e7e6")]
    assert numbered(board, moves) == "7...Ke7 8.e4 Ke6"


def test_a_line_is_cut_where_it_has_come_to_rest() -> None:
    board = chess.Board("3rk3/8/8/3p4/8/8/8/3RK3 w - - 0 1")
    play = Play.of(board, ("d1d5", "d8d5", "e1e2"), longest=9)
    rested = play.rest(least=1, most=3)
    assert [move.uci() for move in rested.moves] == ["d1d5", "d8d5"]
    assert rested.swing(chess.WHITE) == Swing(won=(1, 0, 0, 0, 0), lost=(0, 0, 0, 1, 0))
    assert rested.swing(chess.WHITE).points == -4


def test_of_a_line_that_ends_amid_captures_no_material_is_told() -> None:
    board = chess.Board("r1bq1rk1/1p1pnpb1/p1n1p2p/2p1P2Q/4NP2/2NP4/PPP3PP/R1B2RK1 b - - 0 13")
    amid = Play.of(board, ("f7f6", "e5f6", "g7f6", "e4f6"), longest=9)  # and a rook takes back
    assert amid.swing(chess.WHITE).level
    settled = Play.of(board, ("f7f6", "e5f6", "g7f6", "e4f6", "f8f6", "g1h1"), longest=9)
    assert len(settled.rest(least=2, most=4).moves) > 4


def test_a_piece_that_hangs_is_no_rest() -> None:
    for side in "wb":
        assert not at_rest(chess.Board(f"6k1/5ppp/8/8/3n4/8/5PPP/3R2K1 {side} - - 0 1"))
        assert at_rest(chess.Board(f"6k1/5ppp/4n3/8/8/8/5PPP/3R2K1 {side} - - 0 1"))
        assert at_rest(chess.Board(f"6k1/5ppp/8/8/3p4/8/5PPP/4R1K1 {side} - - 0 1"))


def test_a_threat_ends_where_it_has_won_a_piece() -> None:
    fen = "6k1/5ppp/8/3b4/8/5B2/5PPP/3R2K1 b - - 0 1"
    threat = Line(Evaluation(cp=300), ("f3d5", "g8f8", "d5b7", "f8e8", "d1d8"))
    study = Study(fen, (Line(Evaluation(cp=0), ("d5f3",)),), (), threat)
    found = Case.of(study).threat
    assert found is not None
    assert [move.uci() for move in found.play.moves] == ["f3d5"]


@pytest.mark.parametrize("seed", range(40))
def test_the_candidates_of_a_text_are_written_alike(seed: int) -> None:
    study = random_study(seed)
    case = Case.of(study)
    text, _ = write(case, voice=VOICES["annotator"], length=Length.of("long"), seed=str(seed))
    listed = re.search(r"(\S+), (\S+) and (\S+?)[ .]", text)
    if listed and all(
        re.fullmatch(r"(\d+\.+|\.\.\.)?[A-Za-z][A-Za-z0-9x=+#-]+", name) for name in listed.groups()
    ):
        assert len({re.sub(r"[A-Za-z].*|\d+", "", name) for name in listed.groups()}) == 1, listed[0]


def test_a_drawback_is_not_followed_by_another_but() -> None:
    for seed in range(40):
        answer, _ = draft(random_study(seed), Manner(seed=seed), id_="any")
        for warning in re.finditer(r"(drawback is|the catch|owever|nfortunately)[^.]*\. ([^.]*)", answer):
            assert not warning[2].startswith(("But ", "It runs into")), warning[0]


def test_a_condition_is_not_conceded() -> None:
    pen = Pen(chess.Board(), VOICES["annotator"], Length.of("long"), random.Random(1))
    for first in ("if it were White's turn, Qh7# would be mate", "given another tempo, White would mate"):
        joined = {join_clauses(pen, first, "material is level", against=True) for _ in range(50)}
        assert joined == {f"{first}, but material is level", f"{first}, while material is level"}


def test_traded_minor_pieces_cancel_in_plain_words() -> None:
    swing = Swing(won=(1, 0, 1, 0, 0), lost=(0, 1, 0, 0, 0))
    assert swing.plain == Swing(won=(1, 0, 0, 0, 0), lost=(0, 0, 0, 0, 0))
    assert not swing.level
    assert Swing((0, 1, 0, 0, 0), (0, 0, 1, 0, 0)).plain.level


def test_a_mate_is_called_mate() -> None:
    line = Line(Evaluation(mate=1), ("d1d8",))
    study = Study("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1", (line,))
    for seed in range(8):
        answer, report = draft(study, Manner(length="short", seed=seed), id_="mate")
        assert report.sound
        assert "mate" in answer


def test_an_only_move_is_named_as_such() -> None:
    study = Study("7k/8/8/8/8/8/6rr/K7 w - - 0 1", (Line(Evaluation(mate=-1), ("a1b1", "h2h1")),))
    answers = [draft(study, Manner(seed=seed), id_="only") for seed in range(6)]
    assert all(report.sound for _, report in answers)
    assert all("only legal move" in answer or "forced" in answer for answer, _ in answers)


def test_the_checker_agrees_with_itself() -> None:
    study = random_study(11)
    answer, _ = draft(study, Manner(), id_="twice")
    assert check(answer, study) == check(answer, study)


def test_sayings_are_known_to_the_reader_as_talk() -> None:
    sayings = [saying for group in MAXIMS.values() for saying in group]
    assert {saying.rstrip(".").lower() for saying in sayings} <= TALK
