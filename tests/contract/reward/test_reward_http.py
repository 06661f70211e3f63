"""The JSON contract: shapes, problem documents, limits."""

import httpx
import pytest

from rookery.middleware import MAX_BODY_BYTES
from services.reward.requests import MAX_ITEMS
from services.reward.scorer import Scorer

pytestmark = pytest.mark.stockfish

FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
SURROGATE = rb'{"fen": "x", "response": "\ud800"}'
MATE = {"fen": FEN, "response": r"\boxed{Qxf7#}"}


async def test_a_legal_move(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/score", json=MATE)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.pop("engine")["nodes"] >= 1000
    assert body.pop("reward_version").startswith("delta-1/parser-4/lichess-k0.00368208/nodes-1000/hash-1/")
    assert body == {
        "reward": 0.0,
        "outcome": "legal",
        "move": {"uci": "f3f7", "san": "Qxf7#"},
        "best": {"uci": "f3f7", "san": "Qxf7#"},
        "win_before": 1.0,
        "win_after": 1.0,
        "regret": 0.0,
        "eval_before": {"cp": None, "mate": 1},
        "eval_after": {"cp": None, "mate": 1},
        "components": {"delta": 0.0},
        "sentences": [],
        "process_rewards": [],
        "value_rewards": [],
    }


async def test_an_illegal_move_is_a_verdict(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/score", json={"fen": FEN, "response": r"\boxed{Ke5}"})
    assert response.status_code == 200
    body = response.json()
    assert (body["outcome"], body["reward"], body["components"]) == ("illegal", -1.2, {"penalty": -1.2})
    assert body["move"] is body["best"] is body["win_before"] is body["regret"] is None


async def test_optional_fields(http: httpx.AsyncClient) -> None:
    request = {"fen": FEN, "response": "hm", "task": "move", "scheme": "best", "truncated": True}
    body = (await http.post("/v1/score", json=request)).json()
    assert body["outcome"] == "truncated"
    assert body["reward_version"].startswith("best-2/")


@pytest.mark.parametrize(
    ("request_body", "quoted"),
    [
        ({"fen": "nonsense", "response": ""}, "'nonsense'"),
        ({"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "response": ""}, "stalemate"),
        ({"fen": FEN, "response": "", "scheme": "gold"}, "'gold'"),
        ({"fen": FEN, "response": "", "task": "sing"}, "'sing'"),
        ({"fen": FEN}, "response: Field required"),
        ({"fen": 7, "response": ""}, "got 7"),
        ({"fen": FEN, "response": "", "extra": 1}, "body.extra"),
        ([], "body"),
        ({"fen": FEN, **dict.fromkeys(map(str, range(100_000)))}, "100001 fields: at most 100"),
    ],
)
async def test_bad_input_is_a_422_that_quotes_it(
    http: httpx.AsyncClient, request_body: object, quoted: str
) -> None:
    response = await http.post("/v1/score", json=request_body)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["type"] == "urn:rookery:problem:invalid-input"
    assert quoted in body["detail"]


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"fen": ' + b"[" * 100_000, SURROGATE])
async def test_what_is_no_json_is_refused(http: httpx.AsyncClient, content: bytes) -> None:
    response = await http.post("/v1/score", content=content, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/v1/score", "/v1/score/batch"])
async def test_a_body_too_large_is_a_413(http: httpx.AsyncClient, path: str) -> None:
    async def chunks():
        for _ in range(1 + MAX_BODY_BYTES // (1 << 20)):
            yield b" " * (1 << 20)

    response = await http.post(path, content=chunks(), headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"


async def test_a_batch_keeps_order_and_gives_each_problem_its_slot(http: httpx.AsyncClient) -> None:
    items = [MATE, {"fen": "nonsense", "response": ""}, {"fen": FEN}, 7, {**MATE, "response": "-"}]
    response = await http.post("/v1/score/batch", json={"items": items})
    assert response.status_code == 200
    good, bad_fen, incomplete, no_object, no_box = response.json()["verdicts"]
    assert good == (await http.post("/v1/score", json=MATE)).json()
    assert (bad_fen["status"], bad_fen["type"]) == (422, "urn:rookery:problem:invalid-input")
    assert "'nonsense'" in bad_fen["detail"]
    assert incomplete["status"] == no_object["status"] == 422
    assert "response: Field required" in incomplete["detail"]
    assert no_box["outcome"] == "no_box"


LONG = "x" * 10_000


@pytest.mark.parametrize(
    "fields", [{"task": LONG}, {"move": LONG}, {"task": "P", "scheme": LONG}, {"fen": LONG}, {LONG: ""}]
)
async def test_what_is_quoted_is_short(http: httpx.AsyncClient, fields: dict[str, str]) -> None:
    response = await http.post("/v1/score/batch", json={"items": [MATE | fields]})
    (refusal,) = response.json()["verdicts"]
    assert refusal["status"] == 422
    assert len(refusal["detail"]) < 1000


async def test_batches_have_bounds(http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/score/batch", json={"items": []})).json() == {"verdicts": []}
    response = await http.post("/v1/score/batch", json={"items": [MATE] * (MAX_ITEMS + 1)})
    assert response.status_code == 422


async def test_engines_away_are_a_503_with_retry_after(http: httpx.AsyncClient, scorer: Scorer) -> None:
    await scorer.close()
    response = await http.post("/v1/score", json=MATE)
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    assert "reward" not in response.json()
    batch = await http.post("/v1/score/batch", json={"items": [MATE, {**MATE, "response": ""}]})
    fault, no_box = batch.json()["verdicts"]
    assert fault["status"] == 503
    assert no_box["outcome"] == "no_box"
    assert (await http.get("/readyz")).status_code == 503
    assert (await http.get("/healthz")).status_code == 200


async def test_probes_metrics_and_openapi(http: httpx.AsyncClient) -> None:
    await http.post("/v1/score", json=MATE)
    assert (await http.get("/readyz")).json() == {"status": "ready"}
    metrics = (await http.get("/metrics")).text
    assert 'rookery_reward_outcomes_total{outcome="legal"}' in metrics
    assert 'rookery_reward_requests_total{result="ok",transport="http"}' in metrics
    spec = (await http.get("/openapi.json")).json()
    items = spec["components"]["schemas"]["BatchRequest"]["properties"]["items"]["items"]
    assert items["$ref"].rsplit("/", 1)[1] in spec["components"]["schemas"]


async def test_other_paths_are_problems_too(http: httpx.AsyncClient) -> None:
    for response in (await http.get("/v1/nothing"), await http.get("/v1/score")):
        assert response.status_code in (404, 405)
        assert response.json()["status"] == response.status_code


def test_problem_documents_are_rfc_9457() -> None:
    from rookery.errors import EngineFault, problem

    assert problem(EngineFault("gone")) == {
        "type": "urn:rookery:problem:engine-fault",
        "title": "Engine fault",
        "status": 503,
        "detail": "gone",
    }
