"""Many games: schedules, the journal, faults, early ends, and what is written."""

import asyncio
import io
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import chess.pgn
import pytest
from rich.console import Console

from arena.matches import llm_chess, workers
from arena.matches.game import MatchGame, play
from arena.matches.journal import as_line, as_pgn, open_journal, read_games
from arena.matches.report import encounters, forfeited, summary
from arena.matches.session import Gate, read_anchors, run_elo, run_match, run_tournament
from arena.matches.tournament import SCHEDULES, Played, fixtures, play_all
from arena.players.player import FirstLegalPlayer, Player, RandomPlayer
from arena.strength.pentanomial import Elo, Pentanomial
from arena.strength.sprt import Sprt
from rookery.config.arena import EloSettings, MatchSettings, TournamentSettings
from rookery.errors import Conflict, InvalidInput, PeerFault, SetupError
from rookery.games import Rules
from rookery.openings import START, Opening, draw, read_openings
from tests.unit.arena.players import Failing, Illegal, Slow

RULES = Rules(max_plies=60)
OPENINGS = draw(read_openings(), 12, seed=0)


def played(
    folder: Path,
    *players: Player,
    concurrency: int = 4,
    rules: Rules = RULES,
    openings: list[Opening] = OPENINGS,
    enough=lambda game: False,
) -> Played:
    names = {player.name: player for player in players}
    schedule = fixtures(SCHEDULES["round-robin"](list(names)), openings, names, rules, seed=0)
    with open_journal(folder / "games.jsonl") as journal:
        return asyncio.run(
            play_all(
                schedule,
                partial(play, players=names, rules=rules, backoff_s=0),
                journal=journal,
                concurrency=concurrency,
                enough=enough,
            )
        )


def test_strict_elo_is_that_of_the_first_illegal_moves(tmp_path: Path) -> None:
    """The same games, counted as if the rule had been `forfeit`."""
    rules = Rules(illegal="random", max_plies=80)
    games = played(tmp_path, Illegal("sloppy"), RandomPlayer(), rules=rules).games
    [pairing] = encounters(games, ["sloppy", "random"])
    assert pairing.strict_elo.value is None
    assert pairing.strict_elo.high is not None, "it has lost every game by its first illegal move"
    for game in games:
        strict = forfeited(game)
        assert strict.termination == "illegal_move"
        assert strict.result == ("0-1" if game.white == "sloppy" else "1-0")
        assert strict.turns == game.turns[: len(strict.turns)]
        assert [turn.legal_at_once for turn in strict.turns] == [True] * (len(strict.turns) - 1) + [False]
    legal = played(tmp_path / "legal", FirstLegalPlayer(), RandomPlayer()).games
    assert list(map(forfeited, legal)) == list(legal)
    [pairing] = encounters(legal, ["first-legal", "random"])
    assert pairing.strict_elo == pairing.elo


def test_schedules() -> None:
    assert SCHEDULES["round-robin"]("abc") == [("a", "b"), ("a", "c"), ("b", "c")]
    assert SCHEDULES["gauntlet"]("abc") == [("a", "b"), ("a", "c")]
    assert ("a", "d") in SCHEDULES["ladder"]("abcde")
    assert ("a", "e") not in SCHEDULES["ladder"]("abcde")


def test_each_opening_is_played_with_both_colours(tmp_path: Path) -> None:
    games = played(tmp_path, RandomPlayer("a"), RandomPlayer("b")).games
    assert [(game.white, game.black) for game in games] == [("a", "b"), ("b", "a")] * 12
    assert [game.opening for game in games] == [opening for opening in OPENINGS for _ in range(2)]
    assert len({tuple(turn.move for turn in game.turns) for game in games}) == 24


def test_the_same_opening_again_is_another_game(tmp_path: Path) -> None:
    games = played(tmp_path, RandomPlayer("a"), RandomPlayer("b"), openings=[START, START]).games
    assert len({game.turns for game in games}) == 4


def test_results_do_not_depend_on_how_many_games_are_played_at_a_time(tmp_path: Path) -> None:
    runs = [
        played(
            tmp_path / str(many),
            Slow("a"),
            Slow("b"),
            FirstLegalPlayer(),
            concurrency=many,
            openings=OPENINGS[:4],
        )
        for many in (1, 20)
    ]
    assert runs[0] == runs[1]


def test_faults_are_never_losses(tmp_path: Path) -> None:
    # Every move of some games fails in all its tries, so these stay unplayed; others only now and then.
    flaky = Failing(lambda call: call % 7 == 0 or 100 < call <= 103, "a")
    whole = played(tmp_path / "whole", RandomPlayer("a"), RandomPlayer("b"), concurrency=1)
    partly = played(tmp_path / "partly", flaky, RandomPlayer("b"), concurrency=1)
    assert [unplayed.reason for unplayed in partly.unplayed] == ["the endpoint is gone"]
    missing = partly.unplayed[0]
    assert partly.games == tuple(
        game for game in whole.games if (game.pair, game.white) != (missing.pair, missing.white)
    )
    assert played(tmp_path / "partly", RandomPlayer("a"), RandomPlayer("b")) == whole


def test_a_peer_that_is_gone_ends_the_tournament_with_its_fault(tmp_path: Path) -> None:
    with pytest.raises(PeerFault, match="the endpoint is gone"):
        played(tmp_path, Failing(lambda call: call > 200, "a"), RandomPlayer("b"), concurrency=2)
    assert 0 < len(read_games(tmp_path / "games.jsonl")) < 24


def test_the_journal_survives_a_cut_off_line(tmp_path: Path) -> None:
    whole = played(tmp_path, RandomPlayer("a"), RandomPlayer("b"))
    path = tmp_path / "games.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:10]) + lines[10][: len(lines[10]) // 2])
    assert len(read_games(path)) == 10
    assert played(tmp_path, RandomPlayer("a"), RandomPlayer("b")) == whole
    assert len(read_games(path)) == 24


def test_games_of_other_settings_are_not_taken(tmp_path: Path) -> None:
    first = played(tmp_path, RandomPlayer("a"), RandomPlayer("b"))
    other = played(tmp_path, RandomPlayer("a"), RandomPlayer("b"), rules=replace(RULES, max_plies=30))
    assert len(read_games(tmp_path / "games.jsonl")) == 48
    assert not {game.key for game in first.games} & {game.key for game in other.games}


@pytest.mark.parametrize("line", ["{}", "[1]", "no json", '{"key":"k","opening":{"moves":[]},"turns":[{}]}'])
def test_a_line_that_is_no_game_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "games.jsonl").write_text(f"{line}\n")
    with pytest.raises(InvalidInput, match=r"games.jsonl', line 1, is not a game: .+ .got "):
        read_games(tmp_path / "games.jsonl")


def test_two_processes_cannot_write_one_journal(tmp_path: Path) -> None:
    path = tmp_path / "games.jsonl"
    with open_journal(path), pytest.raises(Conflict, match="another process"), open_journal(path):
        pass


def test_an_early_end_does_not_depend_on_how_many_games_are_played_at_a_time(tmp_path: Path) -> None:
    def ended(many: int) -> tuple[MatchGame, ...]:
        gate = Gate(Sprt(0, 150), "a")
        return played(
            tmp_path / str(many), Slow("a"), Illegal("b"), concurrency=many, enough=gate,
            openings=draw(read_openings(), 60, seed=0), rules=Rules(illegal="retry:1"),
        ).games  # fmt: skip

    assert ended(1) == ended(16)
    assert 8 < len(ended(1)) < 120


def test_pgns_are_read_as_the_same_games(tmp_path: Path) -> None:
    opening = Opening("pawns", "4k3/pppp4/8/8/8/8/PPPP4/4K3 b - - 0 20", ("e8e7",))
    rules = Rules(illegal="random", max_plies=80)
    games = played(
        tmp_path, Illegal('the "model" \\'), RandomPlayer("b"), openings=[*OPENINGS[:5], opening], rules=rules
    ).games
    scored = [
        replace(game, turns=(replace(game.turns[0], cp=-35), replace(game.turns[1], mate=4), *game.turns[2:]))
        for game in games
    ]
    stream = io.StringIO("".join(as_pgn(game, {"b": {"kind": "random", "seed": 1}}) for game in scored))
    for game in scored:
        read = chess.pgn.read_game(stream)
        assert not read.errors
        assert read.board().fen() == game.opening.fen
        turns = [turn for turn in game.turns if turn.move]
        nodes = list(read.mainline())
        assert [node.uci() for node in nodes] == [*game.opening.moves, *(turn.move for turn in turns)]
        first, second, *_ = nodes[len(game.opening.moves) :]
        assert first.eval().white().score() == -35
        assert second.eval().white().mate() == 4
        assert read.headers["Result"] == game.result
        assert read.headers["GameId"] == game.key
        assert "the 'model' /" in (read.headers["White"], read.headers["Black"])
        assert "kind=random; seed=1" in (read.headers["WhiteVersion"], read.headers["BlackVersion"])
        model = [node for node in nodes[len(game.opening.moves) :] if "plan" in node.comment]
        assert len(model) == len([turn for turn in turns if turn.text])
        assert all("(plan): [ %eval 9.99] % \\boxed(" in node.comment for node in model)
        assert all(node.eval() is None for node in nodes[-2:] if node not in (first, second))
    assert chess.pgn.read_game(stream) is None


def test_a_forfeit_is_told_in_the_pgn(tmp_path: Path) -> None:
    games = played(tmp_path, Illegal("model"), RandomPlayer("b"), openings=[START]).games
    read = chess.pgn.read_game(io.StringIO(as_pgn(games[0], {})))
    assert read.headers["Termination"] == "rules infraction"
    assert "(illegal; game forfeited)" in read.end().comment + read.comment


def test_legality_is_counted_whatever_the_rule(tmp_path: Path) -> None:
    rules = Rules(illegal="random", max_plies=80)
    games = played(tmp_path, Illegal("model"), RandomPlayer("b"), rules=rules).games
    model, other = summary("model", games), summary("b", games, RandomPlayer("b"))
    assert model.replaced == model.first_tries["illegal"] > 50
    assert model.legal_rate == pytest.approx(1 - 0.9 / 3, abs=0.05)
    assert model.tokens == 5 * sum(model.first_tries.values())
    assert (other.legal_rate, other.replaced, other.version) == (1.0, 0, {"kind": "random"})
    assert (model.wins, model.draws, model.losses) == (other.losses, other.draws, other.wins)
    forfeits = played(tmp_path / "forfeits", Illegal("model"), RandomPlayer("b")).games
    assert summary("model", forfeits).forfeits == summary("model", forfeits).losses > 0


def test_half_pairs_count_for_the_games_and_not_for_the_pairs(tmp_path: Path) -> None:
    games = played(tmp_path, RandomPlayer("a"), RandomPlayer("b")).games
    (encounter,) = encounters(games[:-1], ["b", "a"])
    assert (encounter.player, encounter.pairs.pairs) == ("b", 11)
    assert encounter.wins + encounter.draws + encounter.losses == 23


def test_the_counts_of_llm_chess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    players = {"model": Illegal("model"), "random": RandomPlayer()}
    monkeypatch.setattr(workers, "make_player", players.__getitem__)
    settings = MatchSettings(
        player="model", opponent="random", pairs=12, llm_chess=True, out=tmp_path, concurrency=3
    )
    report = asyncio.run(run_match(settings, console=quiet()))
    games, counts = read_games(tmp_path / "games.jsonl"), report.llm_chess
    assert {(game.white, game.black, game.opening) for game in games} == {("random", "model", START)}
    assert report.rules == llm_chess.RULES
    assert (
        counts["total_games"] == counts["white_rand_wins"] + counts["black_llm_wins"] + counts["draws"] == 12
    )
    assert counts["llm_total_moves"] == sum(len(game.turns) for game in games)
    failed = [outcome for game in games for turn in game.turns[1::2] for outcome in turn.outcomes]
    assert counts["llm_wrong_moves"] == failed.count("illegal") > 0
    assert counts["llm_wrong_actions"] == 0
    assert 0 < counts["game_duration"] <= 1
    (encounter,) = report.encounters
    assert (encounter.wins, encounter.draws, encounter.losses) == (
        counts["black_llm_wins"], counts["draws"], counts["white_rand_wins"]
    )  # fmt: skip
    wins = [1.0] * encounter.wins + [0.5] * encounter.draws + [0.0] * encounter.losses
    assert encounter.elo == Pentanomial.of(wins).elo != Elo(None, None, None)
    assert encounter.pairs.pairs == 0
    assert report.ratings is not None
    assert {rating.name for rating in report.ratings.players} == {"model", "random"}


def quiet() -> Console:
    return Console(file=io.StringIO(), width=120)


def test_a_match_with_a_sequential_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    players = {"model": Illegal("model"), "random": RandomPlayer()}
    monkeypatch.setattr(workers, "make_player", players.__getitem__)
    console = quiet()
    settings = MatchSettings(
        player="random", opponent="model", pairs=100, sprt="0,100", out=tmp_path, concurrency=8
    )
    report = asyncio.run(run_match(settings, console=console))
    assert report.sprt.decision == "H1"
    assert report.sprt.llr >= report.sprt.bounds[1]
    assert report.encounters[0].pairs.pairs < 100
    said = console.file.getvalue()
    assert "accepted: at least +100 Elo" in said
    assert "random - model: " in said
    document = json.loads((tmp_path / "match.json").read_text())
    assert document["sprt"]["decision"] == "H1"
    assert document["encounters"][0]["pairs"]["counts"] == list(report.encounters[0].pairs.counts)


def test_a_tournament_and_its_anchors(tmp_path: Path) -> None:
    settings = TournamentSettings(
        players=["first-legal", "random", "random,name=other"], pairs=4, out=tmp_path, concurrency=8
    )
    report = asyncio.run(run_tournament(settings, console=quiet()))
    rated = {rating.name: rating for rating in report.ratings.players}
    assert rated["random"].elo.value == 0
    assert rated["random"].anchor
    assert rated["other"].elo.low < 0 < rated["other"].elo.high
    assert rated["first-legal"].elo.value < 0
    assert len(report.encounters) == 3
    anchors = tmp_path / "anchors.json"
    anchors.write_text('{"first-legal": -500}')
    console = quiet()
    again = run_elo(EloSettings(games=tmp_path / "games.jsonl", anchors=anchors), console=console)
    assert "-500 (held)" in console.file.getvalue()
    shifted = {rating.name: rating.elo.value for rating in again.players}
    assert shifted["random"] - shifted["first-legal"] == pytest.approx(-rated["first-legal"].elo.value)
    assert read_anchors(tmp_path / "match.json")["other"] == rated["other"].elo.value


def test_the_published_ladder_holds_its_players() -> None:
    ladder = read_anchors(Path("ladder"))
    assert ladder["random"] == 0
    assert len(ladder) == 12
    random_shares = [f"epsilon-random-share={share}-nodes=1" for share in (0.9, 0.75, 0.6, 0.45, 0.3, 0.15)]
    climb = [ladder[name] for name in ("random", *random_shares, "stockfish-nodes=1", "stockfish-nodes=1000")]
    assert climb == sorted(climb)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "anchors") for text in ("no json", "[1]", '{"a": "b"}', '{"ratings": 3}')),
        ('{"ratings": null}', "a match has no ratings"),
    ],
)
def test_anchors_that_cannot_be_read(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "anchors.json").write_text(text)
    with pytest.raises(InvalidInput, match=said):
        read_anchors(tmp_path / "anchors.json")


def test_two_players_with_one_name_are_refused(tmp_path: Path) -> None:
    settings = MatchSettings(player="random", opponent="random", out=tmp_path)
    with pytest.raises(InvalidInput, match="two players named 'random'"):
        asyncio.run(run_match(settings, console=quiet()))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--sprt", "20,0"], "elo0 20.0 is not below elo1 0.0"),
        (["--sprt", "0,20", "--llm-chess"], "both colours"),
        (["--llm-chess", "--max-plies", "9", "--illegal", "random"], "leave out --illegal, --max-plies"),
        (["--llm-chess", "--limit-cp", "9", "--openings", "b.pgn"], "leave out --limit-cp, --openings"),
        (["--illegal", "retry"], "illegal"),
    ],
)
def test_flags_that_contradict_are_refused(flags: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises((InvalidInput, SetupError), match=said):
        settings = MatchSettings.parse(
            ["random", "first-legal", "--out", str(tmp_path), *flags], prog="match"
        )
        asyncio.run(run_match(settings, console=quiet()))


def test_specifications_with_commas_stay_together() -> None:
    argv = ["random", "stockfish,nodes=10,skill=3", "uci:/a/b,nodes=1,option.Hash=16", "--out", "x"]
    settings = TournamentSettings.parse(argv, prog="tournament")
    assert list(settings.players) == argv[:3]


def test_games_are_written_as_they_are_read(tmp_path: Path) -> None:
    first, *games = played(tmp_path, Illegal("model"), RandomPlayer("b")).games
    games.append(replace(first, turns=(replace(first.turns[0], cp=0), replace(first.turns[-1], mate=-2))))
    (tmp_path / "again.jsonl").write_text("".join(map(as_line, games)))
    assert read_games(tmp_path / "again.jsonl") == games
