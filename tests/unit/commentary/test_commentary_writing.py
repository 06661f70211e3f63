"""The texts: true whatever the lines, varied, the same for the same seed, as long as was asked for."""

import random
import re
from collections import Counter
from functools import cache

import chess
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.annotations.mutations import mutations
from chess_datasets.annotate.study import tempting_moves
from commentary import (
    LENGTHS,
    VOICES,
    Score,
    Study,
    StudyLine,
    move_statements,
    position_statements,
    read,
    write,
)
from commentary.concept import move_findings
from commentary.concepts.tactics import pins_on
from commentary.exchange import is_absurd
from commentary.naming import numbered
from commentary.step import Step
from commentary.template import finite
from commentary.wording import SAYS_NOTHING, TALK
from commentary.writing.case import Case, Loss
from commentary.writing.play import Play, Swing, at_rest
from commentary.writing.text import Text, draft
from commentary.writing.voices import Length
from commentary.writing.writer import Writer
from tests.unit.commentary.boards import walked
from tests.unit.commentary.studies import random_study

NAMES = sorted(VOICES)
DISAGREES = re.compile(
    r"\b(we|I|you|bishops|knights|rooks|queens|kings|pawns|sides) (is|has|waits|passes|does)\b"
    r"|(?<!goes )(?<!go )(?<!going )([Aa]fter|[Ff]ollowing) [^,]*, with |\b(are|and [a-h][1-8]) all isolated"
    r"|(?<!\w)\w*[a-z]pining\b"
)
"""A verb that does not go with its subject, or a sentence without one."""
MATE = "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1"


def drafted(seed: int, *, voice: str = "", length: str = "") -> Text:
    return _drafted(seed, voice or NAMES[seed % 4], length or list(LENGTHS)[seed % 3])


@cache
def _drafted(seed: int, voice: str, length: str) -> Text:
    return draft(random_study(seed), voice=voice, length=length, seed=str(seed))


@given(st.integers(0, 1 << 40))
@example(230_572_649_190)  # "goes after the rook. Black answers Rc7, with"
@example(336)  # "to go after Black's rook on e3"
@settings(max_examples=2 * settings.default.max_examples // 5, deadline=None)
def test_every_text_is_read_back_whole_and_true(seed: int) -> None:
    text = drafted(seed)
    assert not text.reading.unread
    assert not DISAGREES.search(str(text))
    assert all(claim.true for claim in text.reading.claims)
    assert len(text.reading.claims) >= 3
    assert str(text).count("\\boxed{") == 1


def test_planted_falsehoods_are_found() -> None:
    planted = caught = 0
    for seed in range(8):
        text = drafted(seed, length="long")
        for lie in mutations(str(text), random_study(seed), random.Random(seed)):
            planted += 1
            caught += not read(random_study(seed), lie.text).sound
    assert planted > 28
    assert caught == planted


def test_the_same_seed_gives_the_same_text_and_another_seed_another() -> None:
    study = random_study(3)
    one, again, other = (write(study, voice="coach", seed=seed) for seed in ("1", "1", "2"))
    assert one == again != other


@pytest.mark.parametrize(("voice", "word"), [("calculator", r"\b(I|my)\b"), ("coach", r"\b([Ww]e|our)\b")])
def test_a_voice_has_its_person(voice: str, word: str) -> None:
    texts = [drafted(seed, voice=voice).thinking for seed in range(8)]
    assert sum(bool(re.search(word, text)) for text in texts) >= 6
    assert not any(re.search(word, drafted(seed, voice="annotator").thinking) for seed in range(8))


def test_lengths_are_kept() -> None:
    words: Counter[str] = Counter()
    for seed in range(12):
        for length in LENGTHS:
            words[length] += len(drafted(seed, length=length).thinking.split())
    assert words["short"] * 1.3 < words["medium"] < words["long"] / 1.1
    assert Length.of(330) == Length.of("330") == Length.of("medium")
    for wrong in ("huge", 12, 5000):
        with pytest.raises(ValueError, match="no length"):
            Length.of(wrong)


def test_a_text_of_a_sentence_or_two_weighs_no_other_candidate() -> None:
    texts = [drafted(seed, length="45") for seed in range(20)]
    assert all(text.reading.sound and text.reading.claims for text in texts)
    assert max(len(text.thinking.split()) for text in texts) < 60
    weighed = {"candidates", "candidate", "weaker", "stronger", "hands over the advantage"}
    assert not any(claim.concept in weighed for text in texts for claim in text.reading.claims)


def test_no_opening_is_fixed() -> None:
    starts = Counter(" ".join(drafted(seed).thinking.split()[:3]) for seed in range(60))
    assert starts.most_common(1)[0][1] < 6


def test_a_study_must_have_a_line_and_a_voice_must_exist() -> None:
    with pytest.raises(ValueError, match="no line"):
        write(Study(chess.STARTING_FEN))
    with pytest.raises(ValueError, match="poet"):
        write(random_study(1), voice="poet")


def test_a_mate_is_called_mate() -> None:
    study = Study(MATE, (StudyLine(Score(mate=1), ("d1d8",)),))
    texts = [draft(study, voice=NAMES[seed % 4], length="short", seed=str(seed)) for seed in range(8)]
    assert all(text.reading.sound and "mate" in str(text) for text in texts)


def test_an_only_move_is_named_as_such() -> None:
    study = Study("7k/8/8/8/8/8/6rr/K7 w - - 0 1", (StudyLine(Score(mate=-1), ("a1b1", "h2h1")),))
    texts = [draft(study, voice=NAMES[seed % 4], length="medium", seed=str(seed)) for seed in range(6)]
    assert all(text.reading.sound for text in texts)
    assert all("only legal move" in str(text) or "forced" in str(text) for text in texts)


def test_a_winning_move_is_not_passed_over_without_a_reason() -> None:
    lines = (StudyLine(Score(mate=2), ("d1d8",)), StudyLine(Score(cp=700), ("g2g3", "g8f8")))
    study = Study("6k1/1q3ppp/8/8/8/8/5PPP/3RR1K1 w - - 0 1", lines)
    texts = [str(draft(study, voice="notebook", length="long", seed=str(seed))) for seed in range(20)]
    judged = [text for text in texts if re.search(r"g3 .{0,40}wins?\b|It (also|still)? ?wins", text)]
    assert any(re.search(r"weaker than (1\.)?Rd8|stronger than", text) for text in judged)


def test_what_nobody_would_consider_is_no_candidate() -> None:
    board = "r3k2r/ppp2ppp/2n5/3q4/3P4/5N2/PPP2PPP/R2QK2R w KQkq - 0 9"
    quiet = StudyLine(Score(cp=-900), ("d1d3", "d5d4"))
    gift = StudyLine(Score(cp=-900), ("f3g5", "d5g5"))
    case = Case.of(Study(board, (StudyLine(Score(cp=20), ("e1g1",)),), (quiet, gift)))
    assert [candidate.move.uci() for candidate in case.candidates] == ["e1g1", "d1d3"]


NAJDORF = "rnbqkb1r/1p2pppp/p2p1n2/8/3NP3/2N5/PPP2PPP/R1BQKB1R w KQkq - 0 6"


def test_a_piece_is_given_only_near_the_king_or_if_the_engine_likes_it() -> None:
    board = chess.Board(NAJDORF)
    assert is_absurd(board, board.parse_san("Bxa6"))
    assert not is_absurd(board, board.parse_san("Be3"))
    greek = chess.Board("r1bq1rk1/ppp1nppp/2n1p3/3pP3/3P4/3B1N2/PPP2PPP/R1BQK2R w KQ - 0 9")
    assert not is_absurd(greek, greek.parse_san("Bxh7+"))
    assert "f1a6" not in {move.uci() for move in tempting_moves(board, leave_out=set(), count=9)}
    best, gift = StudyLine(Score(cp=40), ("c1e3", "e7e5")), ("f1a6", "b7a6")
    for score, told in ((Score(cp=-250), False), (Score(cp=0), True)):
        case = Case.of(Study(NAJDORF, (best,), (StudyLine(score, gift),)))
        assert ("f1a6" in {candidate.move.uci() for candidate in case.candidates}) == told


def test_instead_of_taking_back_only_a_check_is_looked_at() -> None:
    fen = "r1bqkbnr/1ppp1ppp/p1B5/4p3/4P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 0 4"
    others = (StudyLine(Score(cp=-320), ("g8f6", "c6a4")), StudyLine(Score(cp=-350), ("f8b4", "c6a4")))
    study = Study(fen, (StudyLine(Score(cp=0), ("d7c6", "b1c3")),), others, last="b5c6")
    assert [candidate.move.uci() for candidate in Case.of(study).candidates] == ["d7c6"]


def test_a_later_mate_is_not_called_as_good() -> None:
    lines = (StudyLine(Score(mate=1), ("d1d8",)), StudyLine(Score(mate=4), ("g2g3", "g8f8")))
    texts = [
        str(draft(Study(MATE, lines), voice=NAMES[n % 4], length="long", seed=str(n))) for n in range(24)
    ]
    assert not any(
        re.search("close second|as good|good too|next to nothing|to choose", text) for text in texts
    )
    assert any(re.search("slow|longer", text) for text in texts)


def test_a_sacrifice_is_told_to_its_point() -> None:
    """Legal's mate, of which the first moves only lose the queen; and a piece that comes back late."""
    fen = "r2qkbnr/ppp2p1p/2np2p1/4N3/2B1P1b1/2N5/PPPP1PPP/R1BQK2R b KQkq - 0 6"
    legal = Play.of(chess.Board(fen), ("g4d1", "c4f7", "e8e7", "c3d5"), longest=14)
    assert legal.to_the_point(legal.cut(1), chess.BLACK, -4).end.is_checkmate()
    board = chess.Board("r2q1rk1/pb1nbppp/1p2pn2/8/3P4/2NB1N2/PP3PPP/R1BQ1RK1 w - - 0 12")
    quiet = Play.of(board, ("c1g5", "h7h6", "g5h4", "f6h5"), longest=14)
    assert quiet.to_the_point(quiet.cut(2), chess.WHITE, 3) == quiet.cut(2)
    gift = Play.of(chess.Board("6k1/5ppp/4p3/8/8/8/2B2PPP/3r1BK1 w - - 0 1"), ("c2h7",), longest=14)
    assert gift.to_the_point(gift, chess.WHITE, 1) == gift


def test_a_line_does_not_stop_where_the_last_move_is_taken_back() -> None:
    board = chess.Board("2kr1b1r/pp3ppp/5n2/1N2N3/4q3/8/PPPPQPbP/R1B1K1R1 w Q - 0 15")
    line = Play.of(board, ("e2e4", "g2e4", "e5f7", "f8b4"), longest=9)
    assert line.rest(least=1, most=1) == line.cut(2)


def test_what_is_taken_is_not_named_as_if_it_were_the_piece_that_takes() -> None:
    board = chess.Board(NAJDORF.replace("p2p1n2/8", "p4n2/3p4"))
    step = Step.of(board, board.parse_san("exd5"))
    [captures] = [finding for finding in move_findings(step) if finding.concept.name == "captures"]
    case = Case.of(Study(board.fen(), (StudyLine(Score(cp=0), ("e4d5",)),)))
    for seed in range(20):
        phrase = Writer(case, VOICES["coach"], Length.of("long"), random.Random(seed)).phrase(
            step, [captures]
        )
        assert "that pawn" not in phrase


def test_an_equal_piece_that_can_take_the_pinner_is_opposed_and_pinned_still() -> None:
    board = chess.Board("r5nr/p4p2/2pRqkpp/4Q3/4PP1N/2p4P/PPP3P1/2K5 b - - 0 21")
    said = {finding.concept.name for finding in move_findings(Step.of(board, board.parse_san("Ke7")))}
    assert "unpins" not in said  # the queen on e5 keeps the queen on e6 on the file
    facing = chess.Board("4k3/4b3/8/8/8/8/8/4K3 w - - 0 1")
    facing.set_piece_at(chess.E5, chess.Piece.from_symbol("R"))
    assert [values["pinned"] for values in pins_on(facing)] == [chess.E7]
    facing.set_piece_at(chess.E7, chess.Piece.from_symbol("r"))
    assert not list(pins_on(facing))


def test_several_take_the_plural() -> None:
    board, texts = chess.Board("4k3/2b2p2/8/8/8/8/2B2P2/4K3 w - - 0 1"), set()
    for seed in range(9):
        said = position_statements(board, random.Random(seed), voice="annotator")
        texts |= {text for one in said for text in one.sentences}
    assert {"The bishops are of opposite colours.", "Only bishops and pawns are left."} < texts
    assert not any(map(DISAGREES.search, texts))


def test_taking_back_is_no_gain() -> None:
    fen = "r1bqkb1r/pppp1ppp/2B2n2/4p3/4P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 0 4"
    lines = (StudyLine(Score(cp=-20), ("d7c6", "d2d3")), StudyLine(Score(cp=-40), ("b7c6", "d2d3")))
    for last, back in (("b5c6", True), ("a5b4", False), (None, False)):
        study = Study(fen, lines, last=last)
        texts = [draft(study, voice="annotator", length="long", seed=str(seed)) for seed in range(6)]
        assert all(text.reading.sound for text in texts)
        assert not any(re.search("wins? a|won a|lost a", str(text)) for text in texts)
        assert any(re.search("recaptur|take[sn]? back|taking back", str(text)) for text in texts) == back


@pytest.mark.parametrize(
    ("best", "played", "loss"),
    [
        (Score(cp=30), Score(cp=20), Loss.NOTHING),
        (Score(cp=100), Score(cp=60), Loss.LITTLE),
        (Score(cp=100), Score(cp=0), Loss.SOME),
        (Score(cp=100), Score(cp=-150), Loss.MUCH),
        (Score(mate=2), Score(cp=0), Loss.EVERYTHING),
        (Score(mate=2), Score(cp=1400), Loss.LITTLE),
        (Score(mate=1), Score(mate=4), Loss.LITTLE),
        (Score(cp=1600), Score(cp=1200), Loss.NOTHING),
    ],
)
def test_what_a_move_gives_away(best: Score, played: Score, loss: Loss) -> None:
    assert Loss.of(best, played) == loss


def test_lines_are_numbered_from_either_side() -> None:
    board = chess.Board("4k3/8/8/8/8/8/4P3/4K3 b - - 0 7")
    moves = [chess.Move.from_uci(uci) for uci in ("e8e7", "e2e4", "e7e6")]
    assert numbered(board, moves) == "7...Ke7 8.e4 Ke6"


def test_a_line_is_cut_where_it_has_come_to_rest() -> None:
    board = chess.Board("3rk3/8/8/3p4/8/8/8/3RK3 w - - 0 1")
    rested = Play.of(board, ("d1d5", "d8d5", "e1e2"), longest=9).rest(least=1, most=3)
    assert [move.uci() for move in rested.moves] == ["d1d5", "d8d5"]
    assert rested.swing(chess.WHITE) == Swing(won=(1, 0, 0, 0, 0), lost=(0, 0, 0, 1, 0))
    assert rested.swing(chess.WHITE).points == -4


def test_of_a_line_that_ends_amid_captures_no_material_is_told() -> None:
    board = chess.Board("r1bq1rk1/1p1pnpb1/p1n1p2p/2p1P2Q/4NP2/2NP4/PPP3PP/R1B2RK1 b - - 0 13")
    amid = Play.of(board, ("f7f6", "e5f6", "g7f6", "e4f6"), longest=9)  # and a rook takes back
    assert not any(amid.swing(chess.WHITE).won)
    settled = Play.of(board, ("f7f6", "e5f6", "g7f6", "e4f6", "f8f6", "g1h1"), longest=9)
    assert len(settled.rest(least=2, most=4).moves) > 4


def test_a_piece_that_hangs_is_no_rest() -> None:
    for side in "wb":
        assert not at_rest(chess.Board(f"6k1/5ppp/8/8/3n4/8/5PPP/3R2K1 {side} - - 0 1"))
        assert at_rest(chess.Board(f"6k1/5ppp/4n3/8/8/8/5PPP/3R2K1 {side} - - 0 1"))
        assert at_rest(chess.Board(f"6k1/5ppp/8/8/3p4/8/5PPP/4R1K1 {side} - - 0 1"))


def test_a_threat_ends_where_it_has_won_a_piece() -> None:
    fen = "6k1/5ppp/8/3b4/8/5B2/5PPP/3R2K1 b - - 0 1"
    threat = StudyLine(Score(cp=300), ("f3d5", "g8f8", "d5b7", "f8e8", "d1d8"))
    found = Case.of(Study(fen, (StudyLine(Score(cp=0), ("d5f3",)),), (), threat)).threat
    assert found is not None
    assert [move.uci() for move in found.moves] == ["f3d5"]


def test_a_drawback_is_not_followed_by_another_problem() -> None:
    for seed in range(60):
        for warning in re.finditer(
            r"(drawback is|the catch|owever|nfortunately)[^.]*\. ([^.]*)", str(drafted(seed))
        ):
            assert not re.match("But |It runs into|The (snag|problem|trouble)", warning[2]), warning[0]


def test_a_condition_is_not_conceded() -> None:
    study = Study(MATE, (StudyLine(Score(mate=1), ("d1d8",)),))
    writer = Writer(Case.of(study), VOICES["annotator"], Length.of("long"), random.Random(1))
    for first in ("if it were White's turn, Qh7# would be mate", "given another tempo, White would mate"):
        joined = {writer.join(first, "material is level", against=True) for _ in range(50)}
        assert joined == {f"{first}, but material is level", f"{first}, while material is level"}


def test_a_piece_named_in_an_earlier_effect_is_not_taken_for_the_one_that_moves() -> None:
    board = chess.Board("3r1r1k/1pq1n1pp/p1pNRp2/P1P5/1P1Q4/5P2/6PP/5RK1 b - - 5 29")
    case = Case.of(Study(board.fen(), (StudyLine(Score(cp=0), ("e7f5",)),)))
    step = Step.of(board, chess.Move.from_uci("e7f5"))
    found = {finding.concept.name: finding for finding in move_findings(step)}
    for seed in range(20):
        writer = Writer(case, VOICES["annotator"], Length.of("long"), random.Random(seed))
        phrase = writer.phrase(step, [found["targets a weakness"], found["centralises"]])
        assert read(board.fen(), f"29...Nf5 {finite(phrase)}.").sound, phrase


def test_sayings_are_read_as_talk() -> None:
    for sentences in TALK.values():
        for said in sentences:
            reading = read(MATE, said.split("|")[-1])
            assert [sentence.status for sentence in reading.sentences] == ["talk"]
    assert SAYS_NOTHING


@given(st.integers(0, 1 << 40))
@settings(max_examples=settings.default.max_examples // 5, deadline=None)
def test_every_statement_is_read_back_whole_and_true(seed: int) -> None:
    rng, voice = random.Random(seed), NAMES[seed % 4]
    board = walked(rng)
    move = rng.choice(list(board.legal_moves))
    texts = [text for one in position_statements(board, rng, voice=voice) for text in one.sentences]
    texts += [
        f"{move.uci()} {text}"
        for one in move_statements(board, move, rng, voice=voice)
        for text in one.sentences
    ]
    for text in texts:
        [sentence] = read(board.fen(), text).sentences
        assert sentence.status == "claims", text
        assert not DISAGREES.search(text), text
        assert all(claim.true for claim in sentence.claims), text


def test_a_statement_is_worded_by_every_template_of_its_voice() -> None:
    [level] = [
        one
        for one in position_statements(chess.Board(), random.Random(0), voice="notebook")
        if one.finding.concept.name == "level material"
    ]
    assert {"Material is equal.", "Neither side is ahead in material."} < set(level.sentences)
    assert len(set(level.sentences)) == len(level.sentences)
    assert level.repeats(level)
