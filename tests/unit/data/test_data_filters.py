from dataclasses import replace

import pytest

from chess_datasets.pgn.tags import Facts, Filters, Speed, read_facts, speed_of
from rookery.pgn.rawgame import RawGame
from tests.unit.data.texts import game

LICHESS = game(
    "1. e4 { [%eval 0.17] [%clk 0:00:30] } 1... c5 1-0",
    Event="Rated Blitz game",
    Result="1-0",
    WhiteElo="2100",
    BlackElo="1900",
    WhiteTitle="BOT",
    Variant="Standard",
    TimeControl="180+2",
    Termination="Time forfeit",
)
FACTS = Facts(2100, 1900, 180, 2, Speed.BLITZ, "1-0", "time forfeit", "standard", "test", True, True)


def facts(text: str) -> Facts:
    return read_facts(RawGame(1, text.encode()))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_the_tags_say(newline: str) -> None:
    assert facts(LICHESS.replace("\n", newline)) == replace(FACTS, event="Rated Blitz game")


def test_nothing_said_is_nothing_known() -> None:
    assert facts("1. e4 e5 *") == Facts()
    assert facts('[WhiteElo "?"]\n[BlackElo "99999"]\n[TimeControl "40/7200:3600"]\n\n1. e4 *') == Facts()


@pytest.mark.parametrize(
    "line", ['[WhiteElo "1500"x]', '[WhiteElo "1500"', '[ WhiteElo "1500"]', "[WhiteElo 1500]"]
)
def test_what_is_no_tag_says_nothing(line: str) -> None:
    assert facts(f'[Event "a"]\n{line}\n\n1. e4 *').white_elo is None


def test_tags_end_where_the_moves_begin() -> None:
    assert facts('[Event "a"]\n\n1. e4 {\n[WhiteElo "1500"]\n} *').white_elo is None


@pytest.mark.parametrize(
    ("tag", "base_s", "increment_s", "speed"),
    [
        ("15+0", 15, 0, Speed.ULTRABULLET),
        ("30+0", 30, 0, Speed.BULLET),
        ("60+2", 60, 2, Speed.BULLET),
        ("180+0", 180, 0, Speed.BLITZ),
        ("300+5", 300, 5, Speed.RAPID),
        ("600", 600, 0, Speed.RAPID),
        ("900+15", 900, 15, Speed.CLASSICAL),
        ("-", None, None, Speed.CORRESPONDENCE),
        ("?", None, None, None),
        ("1/86400", None, None, None),
    ],
)
def test_time_controls(tag: str, base_s: int | None, increment_s: int | None, speed: Speed | None) -> None:
    found = facts(game(TimeControl=tag))
    assert (found.base_s, found.increment_s, found.speed) == (base_s, increment_s, speed)


def test_a_move_a_day_is_correspondence() -> None:
    assert speed_of(86_400, 0) is Speed.CORRESPONDENCE


@pytest.mark.parametrize(
    ("filters", "facts", "reason"),
    [
        (Filters(), Facts(), None),
        (Filters(), replace(FACTS, variant="from position"), None),
        (Filters(), replace(FACTS, variant="crazyhouse"), "variant"),
        (Filters(), replace(FACTS, variant="chess 960"), "variant"),
        (Filters(variants=("chess960",)), replace(FACTS, variant="fischerandom"), None),
        (Filters(variants=("chess960",)), FACTS, "variant"),
        (Filters(elo_min=1900), FACTS, None),
        (Filters(elo_min=1901), FACTS, "elo"),
        (Filters(elo_max=2099), FACTS, "elo"),
        (Filters(elo_max=2100), FACTS, None),
        (Filters(elo_max=3000), replace(FACTS, black_elo=None), "elo"),
        (Filters(elo_gap_max=199), FACTS, "elo_gap"),
        (Filters(elo_gap_max=200), FACTS, None),
        (Filters(elo_gap_max=200), Facts(), "elo_gap"),
        (Filters(base_s_min=181), FACTS, "base"),
        (Filters(base_s_min=0), Facts(), "base"),
        (Filters(speeds=(Speed.BLITZ, Speed.RAPID)), FACTS, None),
        (Filters(speeds=(Speed.RAPID,)), FACTS, "speed"),
        (Filters(results=("1-0", "0-1")), FACTS, None),
        (Filters(results=("1/2-1/2",)), FACTS, "result"),
        (Filters(terminations=("normal",)), FACTS, "termination"),
        (Filters(events="RATED"), FACTS, "event"),
        (Filters(events="RATED"), replace(FACTS, event="Rated Blitz game"), None),
        (Filters(bots=False), FACTS, "bot"),
        (Filters(evals=True), FACTS, None),
        (Filters(evals=True), replace(FACTS, evals=False), "eval"),
    ],
)
def test_the_first_filter_that_fails_is_named(filters: Filters, facts: Facts, reason: str | None) -> None:
    assert filters.rejects(facts) == reason
