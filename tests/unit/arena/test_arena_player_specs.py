from pathlib import Path

import chess
import chess.engine
import pytest

from arena import version_evaluator
from arena.players import spec as spec_module
from arena.players.model import ModelPlayer, read_answer
from arena.players.player import RandomPlayer
from arena.players.spec import KINDS, PLAYER_SETTINGS, make_player
from arena.positions import Chosen
from arena.version_evaluator import VersionEvaluator
from rookery.access import Access
from rookery.command_line import main
from rookery.commands import COMMANDS, Command
from rookery.config.arena import WatchSettings
from rookery.errors import RookeryError, SetupError
from rookery.games import position_of
from rookery.prompt import render
from rookery.trace import Completion, Outcome, Prompt
from tests.certificates import Authority
from tests.commands import call


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("", "no such kind of player: choose from random, "),
        ("stokfish,nodes=1", "no such kind of player"),
        ("stockfish:x,nodes=1", "no such kind of player"),
        ("uci,nodes=1", "no such kind of player"),
        ("stockfish", "nodes= is missing"),
        ("stockfish,nodes", "'nodes' is not NAME=VALUE"),
        ("stockfish,nodes=", "nodes: .* valid integer.* \\(got ''\\)"),
        ("stockfish,nodes=0", "nodes: .* greater than 0 \\(got '0'\\)"),
        ("stockfish,nodes=1,nodes=2", "'nodes' is given twice"),
        ("stockfish,nodes=1,skill=21", "skill: .* less than or equal to 20 \\(got '21'\\)"),
        ("stockfish,nodes=1,skill=1,elo=1500", "skill= and elo= exclude each other"),
        ("stockfish,nodes=1,speed=2", "no option 'speed'"),
        ("stockfish,nodes=1,option.Hash=2", "no option 'option'"),
        ("stockfish,nodes=1,name=a b", "name: .* \\(got 'a b'\\)"),
        ("fairy", "level= is missing"),
        ("fairy,level=9", "level: .* less than or equal to 8"),
        ("epsilon-random,share=2,nodes=1", "share: .* less than or equal to 1"),
        ("random,nodes=1", "no option 'nodes'"),
        ("http://h:1", "the model's name is missing"),
        ("http://h:1#m,style=prose", "style: choose from .* \\(got 'prose'\\)"),
        ("http://h:1#m,max_tokens=3", "'max_tokens=3' is not NAME=VALUE"),
        ("http://h:1#m,omit=seed+x", "omit: .*pattern"),
        ("http://h:1#m,tokens-field=", "tokens-field: .*pattern"),
        ("http://h:1#m,vote=1", "vote: .* greater than or equal to 2"),
        ("http://h:1#m,vote=4,best-of=4", "vote= and best-of= exclude each other"),
        (
            "http://h:1#m,vote=4,temperature=0",
            "temperature=0 gives the same answer 4 times: vote= needs more",
        ),
        ("http://h:1#m,spec=3", "'spec=3' is not NAME=VALUE"),
        ("model:models/rook-tiny", "it needs a server: `rookery evaluate` and `rookery uci` start one"),
        ("run:runs/demo@3", "it needs a server"),
    ],
)
def test_a_wrong_spec_is_quoted_with_the_reason(spec: str, why: str) -> None:
    with pytest.raises(SetupError, match=why) as caught:
        make_player(spec)
    assert str(caught.value).startswith(f"player {spec!r}: ")


@pytest.mark.parametrize(
    "spec", ["x" * 999, f"random,{'x' * 999}", f"random,{'x' * 999}=1", f"fairy,level={'x' * 999}"]
)
def test_a_long_spec_is_quoted_in_part(spec: str) -> None:
    with pytest.raises(SetupError) as caught:
        make_player(spec)
    assert len(str(caught.value)) < 600


WITH_PLAYERS = [
    command
    for command in COMMANDS
    if command.function and not {*PLAYER_SETTINGS}.isdisjoint(command.settings_class.model_fields)
]


@pytest.mark.parametrize("command", WITH_PLAYERS, ids=lambda command: command.name)
def test_a_wrong_player_is_refused_before_a_command_does_anything(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = {
        "serve arena": ["--run-dir", str(out), "--data-url", "http://127.0.0.1:9"],
        "arena evaluate": ["--out", str(out), "--data-url", "http://127.0.0.1:9"],
        "arena match": ["--out", str(out)],
        "arena tournament": ["--out", str(out)],
        "evaluate": ["--out", str(out)],
    }
    names = [name for name in PLAYER_SETTINGS if name in command.settings_class.model_fields]
    for wrong, why in (
        ("nobody", "no such kind of player: choose from random, "),
        ("stockfish,nodez=1", "no option 'nodez'"),
        ("model:models/rook-tiny,nodez=1", "no option 'nodez'"),
        ("uci:/nowhere/engine,nodes=1", "uci:PATH is not a program"),
    ):
        for name in names:
            if command.name == "arena match" and name != "referee":
                argv = ["random", wrong]
            elif name in ("players", "specs"):
                argv = [wrong, "random"]
            else:
                argv = [f"--{name}", wrong, *(["random", "random,name=b"] * command.name.startswith("arena"))]
            done = call(main, [*command.name.split(), *argv, *flags.get(command.name, ())])
            assert (done.returncode, done.stdout) == (2, ""), done.stderr
            assert done.stderr.startswith(f"error: player {wrong!r}: {why}") and done.stderr.count("\n") == 1
    assert not out.exists()


def test_models_and_runs_that_are_not_here_are_refused_before_a_line_is_read() -> None:
    for argv in (["uci", "--player"], ["serve", "players"]):
        for wrong, why in (("model:nowhere/at/all", "no model in"), ("run:nowhere", "no run 'nowhere'")):
            done = call(main, [*argv, wrong])
            assert done.returncode == 2 and done.stderr.startswith(f"error: player {wrong!r}: {why}")


def test_what_is_missing_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("rookery.engines.engine._USUAL_PLACES", ())
    for spec, why in [
        ("fairy,level=3", "apt-get install fairy-stockfish"),
        ("stockfish,nodes=1", "apt-get install stockfish"),
        ("uci:/nowhere/engine,nodes=1", "'/nowhere/engine'"),
        ("http://h:1#m,key-env=NO_SUCH_KEY", "the environment variable 'NO_SUCH_KEY' is empty"),
    ]:
        with pytest.raises(SetupError, match=why) as caught:
            make_player(spec)
        assert str(caught.value).startswith(f"player {spec!r}: ")


def test_passwords_and_keys_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "sk-secret")
    player = make_player("https://user:secret@h/v1#org/model-7,key-env=KEY,temperature=0.5,style=fen")
    assert player.name == "model-7"
    assert player.describe() == {
        "kind": "model",
        "url": "https://user:***@h",
        "model": "org/model-7",
        "style": "fen",
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": 0,
        "max_tokens": 32,
    }
    assert "secret" not in f"{player!r}"
    with pytest.raises(RookeryError) as caught:
        make_player("https://user:secret@h/v1#m,style=prose")
    assert "secret" not in str(caught.value)


OPTIONS = {
    "place": "http://h:1#other", "style": "fen", "temperature": "0.5", "top_p": "0.5", "top_k": "5",
    "max_tokens": "9", "source": "run:demo", "thinking": "off",
    "omit": "seed", "tokens_field": "max_completion_tokens", "opening": "<think>",
    "vote": "2", "verify": "2", "best_of": "2", "dialogue": "llm-chess", "tools": "4",
}  # fmt: skip


@pytest.mark.parametrize(
    "option", sorted(KINDS["http"].model_fields.keys() - {"spec", "name", "key_env", "key_file"})
)
def test_every_option_of_a_model_is_in_the_key_of_its_answers(option: str) -> None:
    model, value = "http://h:1#m", OPTIONS[option]
    other = value if option == "place" else f"{model},{option.replace('_', '-')}={value}"
    assert make_player(model).describe() != make_player(other).describe()


@pytest.mark.parametrize("setting", sorted(WatchSettings.model_fields.keys() - version_evaluator._UNDECISIVE))
async def test_every_setting_of_the_watcher_that_changes_figures_is_in_their_key(
    setting: str, tmp_path: Path
) -> None:
    value = {"style": "fen", "temperature": 0.5, "thinking": False}.get(setting, 9)
    keys = set()
    for given in ({}, {setting: value}):
        settings = WatchSettings(run_dir=tmp_path, positions=tmp_path, referee="random,name=judge", **given)
        evaluator = VersionEvaluator(settings)
        keys.add(evaluator._conditions(Chosen((), "", None), "reward-1"))
        await evaluator.close()
    assert len(keys) == 2


def test_a_served_model_is_described_by_what_it_is_not_where() -> None:
    player = make_player("http://127.0.0.1:8100#policy-v000000,name=demo@3,source=run:runs/demo@3:abc")
    assert player.name == "demo@3"
    assert player.describe()["source"] == "run:runs/demo@3:abc"
    assert "url" not in player.describe()


def test_what_an_endpoint_does_not_take_is_renamed_or_left_out() -> None:
    player = make_player(
        "http://h:1#o3,tokens-field=max_completion_tokens,omit=seed+temperature,opening=<think>"
    )
    assert isinstance(player, ModelPlayer)
    fields = {"max_tokens": "max_completion_tokens", "seed": "", "temperature": ""}
    assert (player.client.fields, player.client.opening) == (fields, "<think>")
    assert player.describe()["renamed"] == fields


async def test_players_that_the_watcher_describes_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    async def close(player: RandomPlayer) -> None:
        closed.append(player.name)

    monkeypatch.setattr(RandomPlayer, "close", close)
    settings = WatchSettings(run_dir=tmp_path, positions=tmp_path, referee="random,name=judge")
    await VersionEvaluator(settings).close()
    assert closed == ["random", "judge"]


def test_names_are_of_file_names() -> None:
    assert make_player("random").name == "random"
    assert make_player("first-legal,name=first").name == "first"
    assert set(KINDS) == {"random", "first-legal", "epsilon-random", "stockfish", "fairy", "uci", "http"}


def test_another_temperature_is_another_player_of_the_same_client() -> None:
    player = make_player("http://h:1#m,temperature=0.5")
    assert isinstance(player, ModelPlayer)
    hotter = player.at(1.0)
    assert (hotter.sampling.temperature, hotter.sampling.max_tokens) == (1.0, 32)
    assert hotter.client is player.client and player.sampling.temperature == 0.5


def test_the_prompt_has_all_moves() -> None:
    board, moves = chess.Board(), "e2e4 e7e5 g1f3 b8c6 f1b5 a7a6 b5a4 g8f6 e1g1 f8e7 f1e1 b7b5"
    for text in moves.split():
        board.push_uci(text)
    position = position_of(board)
    assert position.fen == board.fen()
    assert " ".join(position.last_moves) == moves


def read(text: str, board: chess.Board, *, style: str, finish: str = "stop") -> tuple[str | None, Outcome]:
    shown = board if board.turn or not style.startswith("mover") else board.mirror()
    completion = Completion(text, (), (), finish, 0)
    reading, _ = read_answer(completion, Prompt(style, (), shown.fen()), board)
    return reading.move and reading.move.uci(), reading.outcome


BLACK = chess.Board("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1")
PROMOTION = chess.Board("8/8/8/8/8/2k5/4p3/K7 b - - 0 1")


@pytest.mark.parametrize(
    ("text", "board", "style", "expected"),
    [
        (r"\boxed{e7e5}", BLACK, "fen", ("e7e5", Outcome.LEGAL)),
        (r"\boxed{e2e4}", BLACK, "mover-squares", ("e7e5", Outcome.LEGAL)),
        (r"\boxed{Nf3}", BLACK, "mover-pieces", ("g8f6", Outcome.LEGAL)),
        (r"\boxed{e8=N}", PROMOTION, "mover-twice", ("e2e1n", Outcome.LEGAL)),
        (r"\boxed{e7e5}", BLACK, "mover-squares", (None, Outcome.ILLEGAL)),
        ("e7e5", BLACK, "fen", (None, Outcome.NO_BOX)),
        ("M: e7e5 c7c5 E: -0.3 -0.2 B: c7c5", BLACK, "rookworld-p", ("c7c5", Outcome.LEGAL)),
        ("M: e7e5 c7c5 E: -0.3 -0.2 B: c7c5<|endoftext|>", BLACK, "rookworld", ("c7c5", Outcome.LEGAL)),
        ("M: e2e4 E: 0.3 B: e2e4", BLACK, "rookworld", (None, Outcome.ILLEGAL)),
        (r"\boxed{e7e5}", BLACK, "rookworld", (None, Outcome.UNPARSABLE)),
        ("e5", BLACK, "game-san", ("e7e5", Outcome.LEGAL)),
        ("g8f6\ne4e5\n", BLACK, "game-uci", ("g8f6", Outcome.LEGAL)),
        ("e4", BLACK, "game-san", (None, Outcome.ILLEGAL)),
        ("", BLACK, "game-san", (None, Outcome.NO_BOX)),
    ],
)
def test_answers_are_read_on_the_board_that_was_shown(
    text: str, board: chess.Board, style: str, expected: tuple[str | None, Outcome]
) -> None:
    assert read(text, board, style=style) == expected


def test_an_answer_cut_at_the_limit_is_truncated() -> None:
    assert read("M: e7e5 c7", BLACK, style="rookworld", finish="length") == (None, Outcome.TRUNCATED)
    assert read("<think>Well", BLACK, style="fen", finish="length") == (None, Outcome.TRUNCATED)
    assert read("e5", BLACK, style="game-san", finish="length") == (None, Outcome.TRUNCATED)


@pytest.mark.parametrize(
    ("evals", "white"), [("-0.3 1.25", chess.engine.Cp(-125)), ("0.1 999.98", chess.engine.Mate(-2))]
)
def test_a_line_evaluates_its_move(evals: str, white: chess.engine.Score) -> None:
    completion = Completion(f"M: e7e5 c7c5 E: {evals} B: c7c5", (), (), "stop", 0)
    _, score = read_answer(completion, Prompt("rookworld", (), BLACK.fen()), BLACK)
    assert score is not None and score.white() == white


def test_a_player_behind_tls_is_checked_by_the_authority_and_gets_no_token_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Access] = []
    monkeypatch.setattr(spec_module, "InferenceClient", lambda _, access, **options: seen.append(access))
    monkeypatch.setenv("ROOKERY_TOKEN", "of-the-run-0123456789")
    monkeypatch.setenv("ROOKERY_TLS_CA", str(Authority(tmp_path).ca))
    make_player("https://h:1#m")
    assert seen == [Access(ca=tmp_path / "ca.pem")]


ANSWERS = (r"\boxed{e2e5}", r"\boxed{d2d4}", r"\boxed{e2e4}", r"\boxed{e2e4}", r"\boxed{Ke2}")


@pytest.mark.parametrize(
    ("option", "answers", "chosen"),
    [
        ("vote=5", ANSWERS, 2),
        ("vote=2", ANSWERS, 1),
        ("verify=5", ANSWERS, 1),
        ("verify=2", ANSWERS[:1] * 2, 0),
        ("vote=2", ANSWERS[:1] * 2, 0),
        ("best-of=5", ANSWERS, 3),
    ],
)
async def test_one_of_several_answers_is_selected(
    monkeypatch: pytest.MonkeyPatch, option: str, answers: tuple[str, ...], chosen: int
) -> None:
    asked = []

    async def complete(self: ModelPlayer, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        asked.append((count, seed, self.sampling.temperature))
        logprobs = [(-1.0, -3.0), (-2.0,), (-1.9,), (-0.5, -3.0), (-2.5, -2.5)]  # the sum would choose others
        return tuple(
            Completion(text, (n, n + 1), logprobs[n], "stop", seed + n)
            for n, text in enumerate(answers[:count])
        )

    monkeypatch.setattr(ModelPlayer, "_complete", complete)
    player = make_player(f"http://127.0.0.1:9#m,style=fen,{option}")
    assert isinstance(player, ModelPlayer)
    assert player.at(0.0) is player, "a greedy answer would be the same N times"
    prompt = render(position_of(chess.Board()), style="fen")
    count = int(option.partition("=")[2])
    first, second = await player.complete(prompt, count=2, seed=7)
    assert asked == [(count, 7, 1.0), (count, 7 + count, 1.0)]
    assert first.text == second.text == answers[chosen]
    assert len(first.token_ids) == 2 * count, "what was written counts, not what was chosen"
    assert {**player.describe()}.items() >= {"rule": option.partition("=")[0], "answers": count}.items()
    await player.close()
