"""The UCI engine as a process: every rule that runners and GUIs check, under `random` and a policy server."""

import re
import subprocess
import sys
from collections.abc import Iterator

import chess
import chess.engine
import pytest

from tests.conftest import ROOT
from tests.integration.arena.uci_process import Policy, Uci, policy_server, uci
from tests.waiting import until

COMMAND = ["-m", "launcher", "uci"]
CHECKMATED = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
STALEMATE = "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"
SCORE = re.compile(r"info .*\bscore (cp|mate) -?\d+\b")


@pytest.fixture(scope="module")
def engine() -> Iterator[Uci]:
    """One process for all tests that do not end it, as under a runner."""
    with uci("--player", "random") as engine:
        yield engine


@pytest.fixture
def policy() -> Iterator[Policy]:
    with policy_server() as policy:
        yield policy


@pytest.fixture(scope="module")
def player() -> Iterator[tuple[Uci, Policy]]:
    """One engine in front of one policy server, for all tests that do not end it."""
    with policy_server() as policy, uci("--player", f"{policy.url}#m,style=fen") as engine:
        yield engine, policy


@pytest.fixture
def asked(player: tuple[Uci, Policy]) -> Iterator[tuple[Uci, Policy]]:
    """The engine and its policy server, as new."""
    engine, policy = player
    engine.say("setoption name Retries value 3", "setoption name Temperature value own", "ucinewgame")
    engine.say("isready")
    engine.until("readyok")
    yield player
    policy.reset()


def best(lines: list[str]) -> str:
    return lines[-1].split()[1]


def is_legal(lines: list[str], board: chess.Board) -> bool:
    return chess.Move.from_uci(best(lines)) in board.legal_moves


def test_the_greeting(engine: Uci) -> None:
    engine.say("uci")
    lines = engine.until("uciok")
    assert lines[0].startswith("id name Rookery ") and lines[0].endswith(" random")
    assert lines[1].startswith("id author ")
    names = {re.fullmatch(r"option name (.+?) type (spin|check|string) .*", line)[1] for line in lines[2:-1]}
    assert names == {
        "Hash", "Threads", "Move Overhead", "SyzygyPath", "UCI_ShowWDL", "Temperature", "Retries"
    }  # fmt: skip


def test_the_greeting_comes_before_the_player_is_opened() -> None:
    """Not even one whose server is down delays it: the player is opened by `isready`."""
    with uci("--player", "http://127.0.0.1:9#m") as engine:
        engine.say("uci")
        engine.until("uciok")
        engine.say("isready")
        assert "info string error: " in engine.until("info")[-1]
        assert engine.process.wait(240) == 1
        assert engine.process.stderr and "http://127.0.0.1:9" in engine.process.stderr.read()


@pytest.mark.parametrize(
    "go",
    [
        "go wtime 60000 btime 60000",
        "go wtime 100 btime 100",
        "go wtime -50 btime -50",
        "go wtime 60000 btime 60000 winc 1000 binc 1000 movestogo 1",
        "go movetime 1000",
        "go movetime 0",
        "go nodes 1",
        "go depth 1",
        "go mate 1",
        "go",
        "go wtime abc btime",
        "go nonsense 5",
    ],
)
def test_every_form_of_go_has_a_score_and_a_legal_move(engine: Uci, go: str) -> None:
    lines = engine.ask("isready", "position startpos moves e2e4", go)
    board = chess.Board()
    board.push_uci("e2e4")
    assert is_legal(lines, board)
    assert any(SCORE.match(line) for line in lines[:-1])
    assert engine.is_silent()


def test_searchmoves(engine: Uci) -> None:
    for _ in range(5):
        assert best(engine.ask("position startpos", "go searchmoves a2a3 h2h4 depth 1")) in {"a2a3", "h2h4"}
    assert is_legal(engine.ask("go searchmoves e7e5"), chess.Board())


@pytest.mark.parametrize(
    ("position", "go", "move"),
    [
        ("fen 4k3/8/8/8/8/8/8/4K2R w K - 0 1", "go searchmoves e1h1", "e1g1"),
        ("fen 8/4P1k1/8/8/8/8/8/4K3 w - - 0 1", "go searchmoves E7E8N", "e7e8n"),
        ("fen 8/4P1k1/8/8/8/8/8/4K3 w - - 0 1 moves e7e8Q g7h7", "go searchmoves e8e4", "e8e4"),
        ("fen r3k3/8/8/8/8/8/8/4K2R w Kq - 0 1 moves e1h1 e8a8", "go searchmoves f1e1", "f1e1"),
        ("fen rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/1NBQKBNR w KQkq - 0 1", "go searchmoves e2e4", "e2e4"),
        ("fen rnbqkb1r/ppp3pp/3p1n2/3P4/8/2P5/PP3PPP/RNBQKB1R w KQkq e6 0 1", "go searchmoves c3c4", "c3c4"),
    ],
)
def test_what_other_programs_write_is_read_as_stockfish_does(
    engine: Uci, position: str, go: str, move: str
) -> None:
    assert engine.ask(f"position {position}", go)[-1] == f"bestmove {move}"


@pytest.mark.parametrize("go", ["go infinite", "go ponder wtime 1000 btime 1000", "go ponder infinite"])
def test_no_move_before_stop(engine: Uci, go: str) -> None:
    engine.say("isready")
    engine.until("readyok")
    engine.say("position startpos", go, "isready")
    assert not [line for line in engine.until("readyok") if line.startswith("bestmove")]
    lines = engine.ask("stop")
    assert is_legal(lines, chess.Board())
    engine.say("stop")
    assert engine.is_silent()


def test_ponderhit(engine: Uci) -> None:
    engine.say("ponderhit")
    assert engine.is_silent()
    engine.say("position startpos", "go ponder wtime 60000 btime 60000")
    assert is_legal(engine.ask("ponderhit"), chess.Board())


def test_stop_is_answered_at_once_however_slow_the_policy(asked: tuple[Uci, Policy]) -> None:
    engine, policy = asked
    policy.hangs = True
    engine.say("position startpos", "go infinite")
    lines = engine.ask("stop")
    assert is_legal(lines, chess.Board())
    assert "stopped before the player answered: the move is random" in "\n".join(lines)
    assert any(SCORE.match(line) for line in lines)


@pytest.mark.parametrize("go", ["go wtime 100 btime 100", "go movetime 200"])
def test_a_slow_policy_does_not_lose_on_time(asked: tuple[Uci, Policy], go: str) -> None:
    engine, policy = asked
    policy.hangs = True
    lines = engine.ask("position startpos", go)
    assert is_legal(lines, chess.Board())
    assert "out of time before the player answered" in "\n".join(lines)


def test_a_second_go_ends_the_first(asked: tuple[Uci, Policy]) -> None:
    engine, policy = asked
    policy.hangs = True
    engine.say("position startpos", "go infinite", "position startpos moves e2e4", "go movetime 1")
    assert is_legal(engine.until("bestmove"), chess.Board())
    board = chess.Board()
    board.push_uci("e2e4")
    assert is_legal(engine.until("bestmove"), board)


@pytest.mark.parametrize(
    ("position", "why"),
    [
        ("fen nonsense", "not a FEN: 'nonsense'"),
        ("fen", "not a FEN: ''"),
        ("fen 8/8/8/8/8/8/8/8 w - - 0 1", "no white king"),
        ("fen 4k3/8/8/8/8/8/4R3/4K3 w - - 0 1", "opposite check"),
        ("startpos moves e2e5", "e2e5"),
        ("startpos moves e2e4 e2e4", "e2e4"),
        ("startpos moves 0000", "null move"),
        ("startpos moves xyz", "xyz"),
        ("elsewhere", "no position in 'elsewhere'"),
        ("", "no position"),
    ],
)
def test_impossible_positions_and_moves(engine: Uci, position: str, why: str) -> None:
    lines = engine.ask(f"position {position}", "go movetime 10")
    assert lines[-1] == "bestmove (none)"
    assert lines[0].startswith("info string error: ") and why in lines[0]
    assert is_legal(engine.ask("position startpos", "go nodes 1"), chess.Board())


@pytest.mark.parametrize(
    ("given", "used"),
    [("1NBQKBNR w KQkq - 0 1", "1NBQKBNR w Kkq - 0 1"), ("RNBQKBNR w KQkq e6 0 1", "RNBQKBNR w KQkq - 0 1")],
)
def test_flags_nobody_can_use_are_dropped(engine: Uci, given: str, used: str) -> None:
    pawns = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP"
    assert is_legal(engine.ask(f"position fen {pawns}/{given}", "go nodes 1"), chess.Board(f"{pawns}/{used}"))


@pytest.mark.parametrize(("fen", "score"), [(CHECKMATED, "mate 0"), (STALEMATE, "cp 0")])
def test_the_end_of_a_game(engine: Uci, fen: str, score: str) -> None:
    lines = engine.ask(f"position fen {fen}", "go wtime 1000 btime 1000")
    assert lines[-1] == "bestmove (none)"
    assert f"score {score}" in lines[-2]


def test_options(engine: Uci) -> None:
    engine.say(
        "setoption name Hash value 512",
        "setoption name Threads value 8",
        "setoption name Move Overhead value 30",
        "setoption name SyzygyPath value /some where/else",
        "setoption name UCI_ShowWDL value true",
        "setoption name UCI_Chess960 value false",
        "setoption name Ponder value true",
        "setoption name Temperature value 0.5",
        "setoption name temperature value own",
        "setoption name Retries value 0",
    )
    assert engine.is_silent()
    for option, said in [
        ("name UCI_Chess960 value true", "Chess960 is not supported"),
        ("name Temperature value hot", "Temperature 'hot' is not a number from 0 to 2"),
        ("name Retries value 99", "Retries '99'"),
        ("name Nonsense value 1", "no option 'Nonsense'"),
        ("", "no option ''"),
    ]:
        engine.say(f"setoption {option}")
        assert said in engine.until("info string")[-1]


def test_unknown_commands_are_ignored(engine: Uci) -> None:
    engine.say("", "   ", "nonsense", "joho debug on", "register later", "\x00\xff", "stop", "ponderhit")
    assert engine.is_silent()
    engine.say("nonsense uci")
    engine.until("uciok")


@pytest.mark.parametrize("go", [[], ["go infinite"], ["go movetime 100000"], ["isready"]])
def test_nothing_after_quit(policy: Policy, go: list[str]) -> None:
    with uci("--player", f"{policy.url}#m,style=fen") as engine:
        engine.say("isready")
        engine.until("readyok")
        policy.hangs = True
        engine.say("position startpos", *go)
        rest, status = engine.quit()
    assert status == 0
    assert not [line for line in rest if line.startswith("bestmove")]


@pytest.mark.parametrize("go", ["go depth 5", "go", "go infinite", "go ponder", "isready\ngo infinite\n"])
def test_before_the_end_of_the_input_all_is_answered(go: str) -> None:
    """The last line may lack its end."""
    command = [sys.executable, *COMMAND, "--player", "first-legal"]
    ended = subprocess.run(
        command,
        input=f"position startpos\n{go}",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=ROOT,
    )
    lines = ended.stdout.splitlines()
    moves = [line.split()[1] for line in lines if line.startswith("bestmove")]
    assert moves == ["a2a3"] if go in ("go", "go depth 5") else len(moves) == 1
    assert ("readyok" in lines) is ("isready" in go)


def test_the_end_of_the_input_waits_for_the_policy(policy: Policy) -> None:
    policy.hangs = True
    with uci("--player", f"{policy.url}#m,style=fen") as engine:
        assert engine.process.stdin
        engine.say("position startpos", "go")
        engine.process.stdin.close()
        until(lambda: policy.hanging)
        policy.wake.set()
        assert best(engine.until("bestmove")) == "a2a3"
        assert engine.process.wait(240) == 0


def test_the_reasoning_is_one_line(asked: tuple[Uci, Policy]) -> None:
    engine, _ = asked
    lines = engine.ask("position startpos", "go")
    assert r"info string <think>I look. I see.</think>\boxed{a2a3}" in lines
    assert "info string the player gives no evaluation: the score is always 0" in lines
    assert lines[-1] == "bestmove a2a3"


def test_retries_and_temperature(asked: tuple[Uci, Policy]) -> None:
    engine, policy = asked
    policy.moves = ["e2e5", "nonsense", "g1f3"]
    lines = engine.ask("position startpos", "go")
    assert lines[-1] == "bestmove g1f3"
    assert [line for line in lines if "no legal move" in line] == [
        "info string no legal move: illegal",
        "info string no legal move: unparsable",
    ]
    assert [request["temperature"] for request in policy.requests] == [0.0, 1.0, 1.0]
    assert len({request["seed"] for request in policy.requests}) == 3
    policy.requests.clear()
    policy.moves = ["e2e5", "e2e5", "g1f3"]
    engine.say("setoption name Retries value 1", "setoption name Temperature value 0.5")
    lines = engine.ask("go")
    assert is_legal(lines, chess.Board())
    assert [request["temperature"] for request in policy.requests] == [0.5, 0.5]


def test_a_policy_that_dies_in_mid_game(asked: tuple[Uci, Policy]) -> None:
    engine, policy = asked
    board = chess.Board()
    for ply in range(8):
        policy.dead = 2 <= ply < 6
        moves = " ".join(move.uci() for move in board.move_stack)
        lines = engine.ask(f"position startpos moves {moves}" if moves else "position startpos", "go")
        assert is_legal(lines, board)
        assert any(SCORE.match(line) for line in lines)
        assert ("the move is random" in "\n".join(lines)) is policy.dead
        board.push_uci(best(lines))


def test_a_player_that_is_slow_to_start_does_not_keep_the_runner_waiting(policy: Policy) -> None:
    policy.hangs = True
    with uci("--player", f"{policy.url}#m,style=fen") as engine:
        engine.say("isready")
        said = engine.until("readyok")
        assert said[0] == "info string the player is still starting: moves are random until it is ready"
        assert is_legal(engine.ask("position startpos", "go movetime 100"), chess.Board())
        policy.hangs = False
        policy.wake.set()
        assert best(engine.ask("go")) == "a2a3"


def test_a_policy_that_is_not_there_at_the_start(policy: Policy) -> None:
    policy.status = 503
    with uci("--player", f"{policy.url}#m,style=fen") as engine:
        engine.say("isready")
        assert "503" in engine.until("info string error")[-1]
        assert engine.process.wait(240) == 1


def test_a_wrong_key_is_masked(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    policy.status = 401
    monkeypatch.setenv("SECRET", "sk-verysecret")
    with uci("--player", f"{policy.url}#m,style=fen,key-env=SECRET") as engine:
        engine.say("isready")
        said = engine.until("info string error")[-1]
        assert "401" in said and "***" in said
        assert engine.process.wait(240) == 2
        assert engine.process.stderr
        assert "sk-verysecret" not in said + engine.process.stderr.read()


def test_one_player_is_wanted() -> None:
    with uci("--player", "random", "--model", "m") as engine:
        assert engine.process.wait(240) == 2
        assert engine.process.stderr
        assert "give --player or --model, not both" in engine.process.stderr.read()


def test_a_player_without_its_server_is_refused() -> None:
    with uci("--model", "models/rook-tiny", "--server-command=") as engine:
        engine.say("isready")
        assert "it needs a server" in engine.until("info string error")[-1]


def test_python_chess_plays_a_game(policy: Policy) -> None:
    command = [sys.executable, *COMMAND, "--player", f"{policy.url}#m,style=fen"]
    with chess.engine.SimpleEngine.popen_uci(command, timeout=60, cwd=ROOT) as engine:
        engine.configure({"Temperature": 0.7, "Hash": 64, "Threads": 2, "Move Overhead": 50, "Retries": 0})
        with pytest.raises(chess.engine.EngineError):
            engine.configure({"Nonsense": 1})
        board = chess.Board()
        while not board.is_game_over() and board.ply() < 30:
            limit = chess.engine.Limit(white_clock=60, black_clock=60, white_inc=1, black_inc=1)
            result = engine.play(board, limit, info=chess.engine.INFO_ALL)
            assert result.move == min(board.legal_moves, key=chess.Move.uci)
            assert result.info["score"].relative == chess.engine.Cp(0)
            board.push(result.move)
        with engine.analysis(board, root_moves=list(board.legal_moves)[:2]) as analysis:
            analysis.stop()
            assert analysis.wait().move in list(board.legal_moves)[:2]
        with pytest.raises(chess.engine.EngineError, match="Chess960"):
            engine.play(chess.Board.from_chess960_pos(5), chess.engine.Limit(time=1))
    assert policy.requests[-1]["temperature"] == 0.7
    assert {"top_k", "logprobs", "return_token_ids"}.isdisjoint(policy.requests[-1])


@pytest.mark.stockfish
def test_the_score_of_an_engine_is_passed_on() -> None:
    with uci("--player", "stockfish,nodes=2000,name=fish") as engine:
        engine.say("uci")
        assert engine.until("uciok")[0].endswith(" fish")
        engine.say("isready")
        engine.until("readyok")
        lines = engine.ask("position fen 4k3/8/8/8/8/8/8/QQ2K3 w - - 0 1", "go wtime 60000 btime 60000")
        score = next(line for line in lines if SCORE.match(line))
        assert "score mate " in score or int(score.split("score cp ")[1].split()[0]) > 500
        lines = engine.ask("position fen 6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", "go")
        assert "score mate 1" in lines[-2] and lines[-1] == "bestmove a1a8"
