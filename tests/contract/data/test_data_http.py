"""The HTTP contract beyond what the page shows."""

import httpx
import pytest

from services.data.app import MAX_BODY_BYTES
from tests.contract.running_service import RunningService


def get(service: RunningService, query: str) -> httpx.Response:
    return httpx.get(f"{service.url}/v1/positions?{query}", timeout=60)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("count=-1", 'query.count: Input should be greater than or equal to 1 (got "-1")'),
        ("count=10001", "query.count: Input should be less than or equal to 10000"),
        (
            "count=many",
            'query.count: Input should be a valid integer, unable to parse string as an integer (got "many")',
        ),
        ("seed=-1", "query.seed: Input should be greater than or equal to 0"),
        (
            "seed=18446744073709551616",
            "query.seed: Input should be less than or equal to 18446744073709551615",
        ),
        ("split=test", "query.split: Input should be 'train', 'heldout' or 'all' (got \"test\")"),
        ("ofset=5", "query.ofset: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_parameter_is_quoted(data_service: RunningService, query: str, said: str) -> None:
    response = get(data_service, query)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert said in response.json()["detail"]


def test_pages_make_one_order(data_service: RunningService) -> None:
    whole = get(data_service, "count=30&seed=2").json()
    pages = [get(data_service, f"count=10&seed=2&offset={offset}").json() for offset in (0, 10, 20)]
    assert whole["positions"] == [position for page in pages for position in page["positions"]]
    assert [page["next_offset"] for page in pages] == [10, 20, 30]


def test_seeds_differ(data_service: RunningService) -> None:
    assert (
        get(data_service, "count=5&seed=1").json()["positions"]
        != get(data_service, "count=5").json()["positions"]
    )


def test_the_far_end_of_the_order(data_service: RunningService) -> None:
    last = (1 << 64) - 1
    assert len(get(data_service, f"count=3&seed={last}&offset={last}").json()["positions"]) == 3


# prompts


def render(service: RunningService, **asked: object) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/render", json=asked, timeout=60)


START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"fen": "x"}, "not a FEN: 'x'"),
        ({"fen": "8/8/8/8/8/8/8/8 w - - 0 1"}, "impossible position '8/8/8/8/8/8/8/8 w - - 0 1'"),
        ({"fen": START, "style": "poem"}, "no prompt style 'poem': choose from ascii, "),
        ({"fen": START, "last_moves": ["e4"]}, "last move 'e4' is not in UCI"),
        (
            {"fen": START, "last_moves": ["e2e4"] * 1025},
            "body.last_moves: List should have at most 1024 items",
        ),
        ({"fen": START, "stile": "fen"}, "body.stile: Extra inputs are not permitted"),
        ({}, "body.fen: Field required"),
    ],
)
def test_a_wrong_question_is_quoted(
    data_service: RunningService, asked: dict[str, object], said: str
) -> None:
    response = render(data_service, **asked)
    assert response.status_code == 422
    assert said in response.json()["detail"]


MILLION = 1 << 20


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"fen": "x" * MILLION}, f"a FEN cannot have {MILLION} characters: 'xxx"),
        ({"fen": "x " * 1000}, "a FEN cannot have 2000 characters: 'x x "),
        ({"fen": START, "style": "x" * MILLION}, "no prompt style 'xxx"),
        ({"fen": START, "x" * MILLION: 0}, "body.xxx"),
        ({"fen": START, "last_moves": ["x" * 200] * 1024}, "last move 'xxx"),
        ({"fen": START, "last_moves": [0] * 1024}, "and 1014 more"),
        ({f"field{number}": 0 for number in range(100_000)}, "body: 100000 fields: at most 100"),
        ([0] * 500_000, "body: Input should be a valid dictionary"),
    ],
)
def test_a_huge_question_is_quoted_in_part(data_service: RunningService, asked: object, said: str) -> None:
    response = httpx.post(f"{data_service.url}/v1/render", json=asked, timeout=60)
    assert response.status_code == 422
    assert said in response.json()["detail"]
    assert len(response.content) < 4000


@pytest.mark.parametrize("told", [True, False])
def test_a_body_too_large_is_a_413(data_service: RunningService, told: bool) -> None:
    size = 3 * MAX_BODY_BYTES
    chunks = (b" " * (1 << 20) for _ in range(size >> 20))
    headers = {"content-length": str(size)} if told else {}
    response = httpx.post(f"{data_service.url}/v1/render", content=chunks, headers=headers, timeout=60)
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"
    assert str(MAX_BODY_BYTES) in response.json()["title"]


def test_styles_show_one_position(data_service: RunningService) -> None:
    fen = "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2"
    moves = ["e2e4", "e7e5"]
    texts = {
        style: render(data_service, fen=fen, style=style, last_moves=moves).json()["messages"][-1]["content"]
        for style in ("fen", "pgn", "uci", "mover-squares")
    }
    assert texts["pgn"] == "1. e4 e5 *"
    assert texts["uci"].endswith("e2e4 e7e5")
    assert fen in texts["fen"]
    assert len(set(texts.values())) == 4


# games


def test_a_game_leads_back_to_its_positions(data_service: RunningService) -> None:
    (position,) = get(data_service, "count=1&seed=11").json()["positions"]
    source, number, ply = position["id"].split(":")
    by_place, by_moves = (
        httpx.get(f"{data_service.url}/v1/games/{name}").json()
        for name in (f"{source}:{number}", position["game_id"])
    )
    assert by_place["id"] == by_moves["id"] == position["game_id"]
    assert by_place["moves"][: int(ply)] == position["last_moves"]


@pytest.mark.parametrize("name", ["nonsense", "0123456789abcdef", "8999067f:0", "8999067f:x", "::"])
def test_a_game_that_is_not_there(data_service: RunningService, name: str) -> None:
    response = httpx.get(f"{data_service.url}/v1/games/{name}")
    assert response.status_code == 404
    assert response.json()["detail"] == f"no game '{name}' in 2962 games"
