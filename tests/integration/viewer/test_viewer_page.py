"""The page in a real Chromium: every flow, hostile texts, accessibility. Screenshots are left in a folder.

`ROOKERY_SCREENSHOTS` names the folder; by default it is one of pytest's.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import chess.pgn
import httpx
import pytest

from rookery.streams import DEAD_FILE, DeadLetter, RunStreams, dump_letters
from services.viewer.queries import BARS
from tests import builders
from tests.conftest import ROOT, RedisServer, require
from tests.processes import serving
from tests.viewed_runs import BATCH, HOSTILE, STEPS, game_group, hostile_group, write_run
from tests.waiting import until

pytestmark = pytest.mark.chromium

TOKEN = "a-token-of-this-page"
REPORT = {
    "players": {"policy-v000000": {}, "policy-v000008": {}},
    "sections": {
        "positions": {
            "metrics": {
                "regret_legal_greedy": {
                    "policy-v000000": {"mean": 0.3, "ci95": [0.25, 0.35]},
                    "policy-v000008": {"mean": 0.2, "ci95": [0.15, 0.24]},
                    "engine's best": {"mean": 0.0, "ci95": [0.0, 0.0]},
                }
            }
        }
    },
}
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


class Site:
    """The page in a browser. Whatever the browser complains about is kept in `complaints`."""

    def __init__(self, page: Any, url: str, shots: Path, runs: Path, redis: RedisServer) -> None:
        self.page, self.url, self.shots, self.runs, self.redis = page, url, shots, runs, redis
        self.complaints: list[str] = []
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._listen)

    def _listen(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def open(self, path: str, heading: str) -> Any:
        self.page.goto(self.url + path)
        return self.at(heading)

    def at(self, heading: str) -> Any:
        self.page.locator("main h1", has_text=heading).wait_for()
        return self.shown()

    def shown(self) -> Any:
        """Waits until the page shows what its address says."""
        # `wait_for_function` would need eval, which the page's headers forbid.
        now = "document.querySelector('main').dataset.shown === location.pathname + location.search"
        deadline = time.monotonic() + 120
        while not self.page.evaluate(now) and time.monotonic() < deadline:
            self.page.wait_for_timeout(50)
        return self.page

    def shot(self, name: str) -> None:
        self.page.screenshot(path=self.shots / f"{name}.png")

    def check_accessibility(self) -> None:
        source = (files("axe_playwright_python") / "axe.min.js").read_text()
        self.page.evaluate(source)
        self.page.evaluate("window.scrollTo(0, 0)")  # the header covers what is scrolled below it
        found = self.page.evaluate(
            "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", AXE_TAGS
        )
        said = [f"{v['id']}: {node['html'][:160]}" for v in found["violations"] for node in v["nodes"]]
        assert said == []
        assert found["passes"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, stockfish_path: str) -> Iterator[Site]:
    """A viewer with a Redis that has a dead letter, and a reward service; no policy is served."""
    from playwright.sync_api import sync_playwright

    folder = tmp_path_factory.mktemp("viewer")
    runs, shots = folder / "runs", Path(os.environ.get("ROOKERY_SCREENSHOTS", folder / "screenshots"))
    write_run(runs, "one", seed=0, more=(hostile_group("one"),))
    black = "rnbqkbnr/pppp1ppp/8/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R b KQkq - 0 3"
    write_run(runs, "two", seed=1)  # opened by a test that sees it being indexed
    write_run(runs, "three", seed=1, more=(game_group("three", fen=black),))
    (runs / "three" / "adapters" / f"policy-v{STEPS:06d}" / "adapter_model.safetensors").touch()
    write_run(runs, "four", seed=1, more=(game_group("four", fen=black, colours="both"),))
    start = {"time": 1763721000.0, "command": "rookery up --run one", "commit": "0123abc", "version": "1"}
    (runs / "one" / "run.json").write_text(json.dumps({"id": "6f", "starts": [start, start]}))
    (runs / "two" / "report.json").write_text(json.dumps(REPORT))
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    _leave_dead_letter(server.url)
    token = folder / "token"
    token.write_text(TOKEN)
    flags = ["--grpc-port", "0", "--engines", "1", "--engine-path", stockfish_path]
    with (
        serving("services.reward", *flags, log=folder / "reward.log") as reward,
        serving(
            *("services.viewer", "--runs-dir", runs, "--redis-url", server.url),
            *("--reward-url", reward, "--token-file", token),
            log=folder / "viewer.log",
        ) as url,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=["--no-sandbox"])
        shots.mkdir(parents=True, exist_ok=True)
        with closing(browser.new_page(viewport={"width": 1280, "height": 860})) as page:
            yield Site(page, url, shots, runs, server)
        browser.close()
    server.stop()


def _leave_dead_letter(url: str) -> None:
    streams = RunStreams(url, "one")
    builders.feed(streams, 1)
    [held] = until(lambda: streams.positions.read(count=1, block_s=0.1, consumer="a"))
    streams.positions.dead_letter(held.id, reason="engines died on <b>it</b>")
    streams.close()


@pytest.fixture(autouse=True)
def no_complaints(site: Site) -> Iterator[None]:
    yield
    said, site.complaints = site.complaints, []
    assert said == []


def test_two_clicks_lead_from_the_whole_to_one_answer(site: Site) -> None:
    page = site.open("/", "Runs")
    site.shot("runs")
    site.check_accessibility()
    page.get_by_role("link", name="one", exact=True).click()
    site.at("one")
    page.locator(".plot canvas").first.wait_for()
    about = page.locator(".about").inner_text()
    assert {"rookery up --run one", "0123abc", "2025-11-21 10:30 UTC"} <= set(about.splitlines())
    bar = page.locator("a.bar i.good").first.evaluate("e => getComputedStyle(e).backgroundColor")
    swatch = page.locator(".key .swatch.good").first.evaluate("e => getComputedStyle(e).backgroundColor")
    assert bar == swatch, "one colour for one thing"
    site.shot("overview")
    site.check_accessibility()
    page.locator("a.bar").last.click()
    site.at("Answers")
    assert "reward_min=" in page.url
    page.locator(".chip:not(.faded)").first.click()
    site.at("Group")
    assert page.locator(".answer.chosen").count() == 1
    assert page.locator(".answer").count() == 4
    assert page.locator(".board svg line").count() > 0
    assert page.locator(".answer footer span:not([title])").count() == 0, "figures are explained"
    assert page.locator(".facts dd").first.inner_text().count("/") == 7, "the FEN"
    with page.expect_download() as download:
        page.get_by_role("link", name="PGN").click()
    pgn = io.StringIO(Path(download.value.path()).read_text())
    games = list(iter(lambda: chess.pgn.read_game(pgn), None))
    assert {len(list(game.mainline_moves())) for game in games} <= {0, 1}
    assert (len(games), [game.errors for game in games]) == (4, [[]] * 4)
    site.shot("group")
    site.check_accessibility()


def test_filters_sorting_and_search_are_in_the_address(site: Site) -> None:
    all_groups = BATCH * (STEPS + 1) + 1
    # The viewer may still be indexing the run.
    until(lambda: site.open("/runs/one/answers", "Answers").locator(".group-row").count() == all_groups)
    page = site.page
    page.locator(".facets a", has_text="illegal").click()
    page.wait_for_url("**outcome=illegal")
    site.shown()
    page.locator("summary", has_text="Ranges").click()
    page.get_by_label("Version from").fill("3")
    page.get_by_label("Search in the answers").fill("think")
    page.get_by_role("button", name="Apply").click()
    page.wait_for_url("**version_min=3**")
    site.shown()
    page.get_by_label("Sort by").select_option("surprise")
    page.wait_for_url("**sort=surprise**")
    site.shown()
    shown = page.locator(".group-row").count()
    assert 0 < shown < all_groups
    page.reload()
    site.at("Answers")
    assert page.locator(".group-row").count() == shown
    site.shot("answers")
    site.check_accessibility()
    page.get_by_label("Sort by").select_option("component")
    page.wait_for_url("**component=delta**")
    site.shown()
    assert page.locator(".group-row").count() == shown
    page.get_by_label("Search in the answers").fill("nothing has this")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("No answer passes these filters").wait_for()
    site.shot("no-answers")


def test_the_views_of_a_group(site: Site) -> None:
    page = site.open("/runs/one/groups/one-007?answer=1", "Group one-007")
    assert page.get_by_text("trained in step 2, on version 1, at age 1").count() == 1
    page.get_by_role("link", name="Log-probability").click()
    page.locator(".token[title*=log-probability]").first.wait_for()
    site.shot("tokens")
    site.check_accessibility()
    page.get_by_role("link", name="Ratio", exact=True).click()
    page.get_by_text("This answer carried no loss").wait_for()
    page.locator("#answer-0 .token[title^=ratio]").first.wait_for()
    site.shot("ratios")
    site.check_accessibility()
    page.get_by_role("link", name="Advantage", exact=True).click()
    page.locator("#answer-0 .token[title^=advantage]").first.wait_for()
    titles = page.locator("#answer-0 .token")
    assert [titles.nth(n).get_attribute("title") for n in (0, 3)] == [
        "advantage \u22120.02",
        "advantage +0.01",
    ]
    site.check_accessibility()
    page.get_by_role("link", name="Follow this position").click()
    site.at("Position")
    site.shot("position")
    site.check_accessibility()


def test_a_game_as_one_plays_through_it(site: Site) -> None:
    until(lambda: site.open("/runs/three/answers", "Answers").locator(".facets a", has_text="game").count())
    page = site.page
    page.locator(".facets a", has_text="lost").click()
    page.wait_for_url("**result=lost")
    site.shown()
    assert page.locator(".group-row").count() == 1
    page.locator(".chip:not(.faded)").first.click()
    site.at("Group games")
    assert page.locator(".game .switch[aria-current]").inner_text().startswith("Episode 2, Black: lost")
    page.locator(".game .switch").first.click()
    site.shown()
    moves = page.locator(".game .moves a.move").all_inner_texts()
    page.get_by_text("Black to move").wait_for()
    for turn in (1, 2):
        page.keyboard.press("ArrowRight")
        page.wait_for_url(f"**answer={turn}*")
        site.shown()
    assert page.locator(".game .moves [aria-current]").inner_text() == moves[2]
    assert page.locator(".answer.chosen .move").inner_text() == moves[2]
    assert (len(moves), page.locator(".answer").count()) == (6, 1), "a turn at a time"
    with page.expect_download() as download:
        page.get_by_role("link", name="PGN").click()
    first = chess.pgn.read_game(io.StringIO(Path(download.value.path()).read_text()))
    assert (len(list(first.mainline_moves())), first.headers["Result"], first.errors) == (12, "1/2-1/2", [])
    site.shot("game")
    site.check_accessibility()


def test_a_game_that_the_opponent_begins(site: Site) -> None:
    until(lambda: site.open("/runs/four/answers", "Answers").locator(".facets a", has_text="game").count())
    page = site.open("/runs/four/groups/games?answer=6", "Group games")
    assert page.locator(".game .switch[aria-current]").inner_text().startswith("Episode 2, White: lost")
    assert page.get_by_text("the policy plays White, 3 turns").count() == 1
    moves = page.locator(".game .moves li")
    assert moves.first.locator("a").count() == 0, "the opponent's"
    page.get_by_text("White to move").wait_for()
    page.get_by_text("White's win probability, and the policy's regret, by half-move").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="PGN").click()
    pgn = io.StringIO(Path(download.value.path()).read_text())
    _, second = chess.pgn.read_game(pgn), chess.pgn.read_game(pgn)
    assert second
    assert (second.headers["White"], second.headers["Black"]) == ("policy v0", "opponent")
    assert [node.san() for node in second.mainline()] == moves.all_inner_texts()
    assert (second.errors, second.turn(), second.headers["Result"]) == ([], chess.BLACK, "0-1")
    site.shot("game-both")
    site.check_accessibility()


def test_training_compare_and_rescore(site: Site) -> None:
    page = site.open("/runs/one/training", "Training")
    page.locator(".plot canvas").nth(8).wait_for()
    site.shot("training")
    site.check_accessibility()
    rewards = page.locator("figure", has_text="Rewards of answers")
    assert rewards.locator(".shade").count() == 1
    colours = rewards.locator("canvas").evaluate(
        "e => new Set(new Uint32Array(e.getContext('2d')"
        ".getImageData(0, 0, e.width, e.height).data.buffer)).size"
    )
    assert colours > 3, "columns in shades"
    with page.expect_download() as download:
        rewards.get_by_role("button", name="CSV").click()
    head, *rows = Path(download.value.path()).read_text().splitlines()
    assert head.count('"share ') == BARS
    assert sum(map(float, rows[0].split(",")[-BARS:])) == pytest.approx(1.0)
    page.get_by_label("Another run over it").select_option("three")
    page.wait_for_url("**with=three")
    site.shown()
    page.get_by_label("Smoothing").select_option("5")
    page.wait_for_url("**smooth=5")
    site.shown()
    with page.expect_download() as download:
        page.locator("figure", has_text="three: reward").get_by_role("button", name="CSV").click()
    head, *rows = Path(download.value.path()).read_text().splitlines()
    assert (head.split(",")[0], '"three: ' in head, len(rows)) == ("x", True, STEPS)
    # The index reads the settings of a run before its archive: from a pipe, it waits for who writes them.
    settings = site.runs / "two" / "trainer.toml"
    text = settings.read_text()
    settings.unlink()
    os.mkfifo(settings)
    with os.fdopen(os.open(settings, os.O_RDWR), "w") as pipe:
        site.open("/runs/one/compare", "Compare")
        page.get_by_label("Other run").select_option("two")
        page.get_by_text("Still being indexed, so only a part is shown: two.").wait_for()
        assert page.get_by_text("No answers of two").count() == 1
        settings.unlink()
        settings.write_text(text)
        pipe.write(text)
    page.locator(".tile", has_text="difference").wait_for()
    assert page.locator(".group-row").count() == BATCH * (STEPS + 1)
    assert page.locator(".group-row").first.locator(".chip").count() == 2 * (1 + 4)
    page.locator(".plot canvas").nth(3).wait_for()
    site.shot("compare")
    site.check_accessibility()
    page.get_by_label("Other run").select_option("one")
    page.wait_for_url("**with=one*")
    site.shown()
    page.get_by_label("one, versions to").first.fill("3")
    page.get_by_label("one, versions from").last.fill("4")
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_text("No position in common").wait_for()
    assert "first_max=3" in page.url
    assert "second_min=4" in page.url
    site.open("/runs/one/rescore?outcome=legal", "Rescore")
    page.get_by_label("Scheme").fill("accuracy")
    page.get_by_role("button", name="Rescore").click()
    page.wait_for_url("**scheme=accuracy")
    page.locator(".tile", has_text="the other sign").wait_for()
    site.shot("rescore")
    site.check_accessibility()
    page.get_by_label("Scheme").fill("nonsense")
    page.get_by_role("button", name="Rescore").click()
    page.get_by_role("alert", name="").filter(has_text="nonsense").wait_for()
    assert page.get_by_label("Scheme").input_value() == "nonsense"


def test_two_players_of_a_battery_side_by_side(site: Site) -> None:
    folder = site.runs / "exam"
    folder.mkdir()
    said = {"legal": HOSTILE["script"], "illegal": "\\boxed{Ke5}"}
    lines = [
        {"key": f"{player}{n}", "player": player, "question": f"p{n}", "section": "brittleness",
         "task": "shuffled" if n % 2 else "as it is", "fen": chess.STARTING_FEN,
         "outcome": outcome, "text": said[outcome]}
        for player in ("rook", "random") for n in range(30)
        for outcome in ["illegal" if player == "rook" and n % 3 == 0 else "legal"]
    ]  # fmt: skip
    (folder / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = site.open("/", "Runs")
    page.get_by_role("link", name="exam").click()
    site.at("exam")
    page.get_by_role("link", name="Battery").click()
    site.at("Battery")
    for label, value in (
        ("Task", "shuffled"),
        ("Player", "rook"),
        ("beside", "random"),
        ("Outcome", "illegal"),
    ):
        page.get_by_label(label).select_option(value)
        site.shown()
    page.wait_for_url("**outcome=illegal**")
    page.get_by_text("5 questions that both players were asked").wait_for()
    row = page.locator(".group-row").first
    assert row.locator(".beside > div").count() == 2
    assert row.locator(".beside > div b").all_inner_texts() == ["rook", "random"]
    assert row.locator(".model-text").all_inner_texts() == [said["illegal"], said["legal"]]
    site.shot("battery")
    site.check_accessibility()


def test_hostile_texts_stay_texts(site: Site) -> None:
    page = site.open("/runs/one/groups/hostile", "Group hostile")
    site.shot("hostile")
    assert page.locator("main script, main img").count() == 0
    assert page.locator(".model-text", has_text="<script>").count() >= 1
    assert "owned" not in page.title()
    assert page.locator("dd", has_text="in \u2013 s").count() == 2
    hidden = page.locator(".hidden-char").all_inner_texts()
    assert {"U+202E", "U+2066", "U+0007", "U+200B", "U+FEFF"} <= set(hidden)
    assert page.locator(".answer .claim.false").count() == page.locator(".answer .claim.true").count() == 1
    megabyte = page.locator("#answer-3 .model-text")
    assert len(megabyte.inner_text()) < 2000
    megabyte.get_by_role("button", name="Show all").click()
    assert len(megabyte.inner_text()) > 1 << 20
    site.check_accessibility()


def test_play(site: Site) -> None:
    page = site.open(f"/runs/one/play#token={TOKEN}", "Play")
    assert "token" not in page.url
    assert page.get_by_text("The policy cannot be asked").count() == 1
    page.get_by_label("FEN or PGN").fill("1. e4 e5 2. Nf3 Nc6 3. Bb5 Nf6 4. O-O")
    page.get_by_role("button", name="Set up").click()
    page.get_by_text("Black to move").wait_for()
    page.get_by_label("Player").select_option("engine")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("Win probability").wait_for()
    site.shot("play")
    site.check_accessibility()
    page.get_by_role("button", name="Play against it").click()
    page.wait_for_url("**against=engine**")
    site.shown()
    page.get_by_label("Your move").fill("a6")
    page.get_by_role("button", name="Move", exact=True).click()
    page.locator(".moves li").nth(8).wait_for()  # the engine has answered
    assert page.locator(".moves li").nth(7).inner_text() == "a6"


def test_a_version_that_cannot_be_loaded_says_why(site: Site) -> None:
    page = site.open(f"/runs/three/play#token={TOKEN}", "Play")
    assert page.locator("select[name=version] option").all_inner_texts() == [str(STEPS)]
    page.get_by_role("button", name="Serve it").click()
    page.get_by_text(f"Version {STEPS} could not be served: error: ").wait_for()
    site.shot("play-failed")
    site.check_accessibility()


def test_a_dead_letter_is_put_back(site: Site) -> None:
    page = site.open(f"/runs/one/dead#token={TOKEN}", "Dead letters")
    assert page.get_by_text("engines died on <b>it</b>").count() == 1
    site.shot("dead")
    site.check_accessibility()
    page.get_by_role("button", name="Replay").click()
    page.get_by_text("put back").wait_for()
    site.redis.stop()
    kept = site.runs / "one" / "archive" / "run=one" / DEAD_FILE
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(dump_letters([DeadLetter("1-0", "traces", "7-0", "not finite", b"")]))
    page = site.open("/runs/one/dead", "Dead letters")
    assert page.get_by_text("these are what the archive kept").count() == 1
    assert page.get_by_text("not finite").count() == 1
    assert page.get_by_role("button", name="Replay").count() == 0
    kept.unlink()
    page = site.open("/runs/one/answers", "Answers")
    page = site.open("/runs/one/dead", "Dead letters")
    assert page.get_by_text("which cannot be asked").count() == 1
    site.redis.start()


def test_keys_dark_mode_and_a_phone(site: Site) -> None:
    page = site.open("/runs/one/answers", "Answers")
    for key in ("j", "j", "k", "Enter"):
        page.keyboard.press(key)
    site.at("Group hostile")
    page.keyboard.press("]")
    site.at("Group one-035")
    page.keyboard.press("2")
    page.wait_for_url("**answer=1")
    page.keyboard.press("l")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.locator("#answer-1.chosen").wait_for()
    site.shot("dark")
    site.check_accessibility()
    for view in ("a", "t", "o"):
        page.keyboard.press("g")
        page.keyboard.press(view)
    site.at("one")
    page.set_viewport_size({"width": 390, "height": 800})
    for path, heading in (
        ("/runs/one", "one"),
        ("/runs/one/training", "Training"),
        ("/runs/one/compare?with=three", "Compare"),
        ("/runs/three/play", "Play"),
        ("/runs/one/rescore", "Rescore"),
        ("/runs/four/groups/games?answer=6", "Group games"),
        ("/runs/one/answers", "Answers"),
        ("/runs/one/groups/one-007", "Group"),
    ):
        site.open(path, heading)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        site.shot(f"phone-{heading.lower()}")
    site.check_accessibility()
    page.keyboard.press("l")
    page.set_viewport_size({"width": 1280, "height": 860})


def test_it_shows_a_run_as_it_goes_on(site: Site) -> None:
    page = site.open("/runs/two", "two")
    page.locator(".live", has_text=f"step {STEPS}").wait_for()
    verdict = page.locator(".verdict-line").inner_text()
    assert "is 0.2 for policy-v000008 and 0.3 for policy-v000000: a lower regret" in verdict
    metrics = site.runs / "two" / "metrics.jsonl"
    last = json.loads(metrics.read_text().splitlines()[-1])
    with metrics.open("a") as file:
        file.write(json.dumps(last | {"step": 77, "version": 77}) + "\n")
    page.locator(".tile", has_text="77").wait_for()


def test_view_prints_an_address_that_opens(site: Site, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_run(runs, "mine", seed=0)
    elsewhere = "http://127.0.0.1:1"
    argv = [sys.executable, "-m", "launcher", "view", f"file://{runs}/mine", "--inference-url", elsewhere]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout
        try:
            address = server.stdout.readline().strip()
            site.page.goto(address)
            site.at("mine")
            site.page.locator("a.bar").first.wait_for()
            players = httpx.get(f"{address.partition('/runs')[0]}/api/runs/mine/players").json()
            kept = site.page.evaluate("sessionStorage.getItem('rookery-token')")
        finally:
            server.terminate()
    assert elsewhere in players["inference"]
    assert kept == address.partition("token=")[2] != ""
    with pytest.raises(httpx.ConnectError):  # the server ends with the command that started it
        for _ in range(100):
            # It is about to end.
            with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError, httpx.TimeoutException):
                httpx.get(address.partition("/runs")[0] + "/healthz", timeout=5)
            time.sleep(0.2)
