"""The reward model as its callers meet it: the real app and desk around a real model."""

import asyncio
import json
import math
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import torch

from rookery.config.finetune import RewardModelSettings
from rookery.errors import RookeryError
from rookery.serving import Service
from services.trainer.reward_model import training
from services.trainer.reward_model.report import CARD
from services.trainer.reward_model.server import BatchQueue, RewardScorer, create_app
from services.trainer.tiny import build_tiny
from services.trainer.versions.files import file_sha256
from tests import hostile, openapi
from tests.conftest import free_port
from tests.unit.rookery.running import running
from tests.unit.trainer.preferences import BAD, GOOD, write_pairs

BOARD = "RNBQKBNRPPPPPPPP................................pppppppprnbqkbnr KQkq -"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reward_model")
    model = build_tiny(place / "base", seed=1, hidden_size=64, layers=1, intermediate_size=128)
    data = write_pairs(place / "pairs.jsonl", count=120)
    (place / "manifest.json").write_text(json.dumps({"terms": {"recipe": {"style": "mover-squares"}}}))
    settings = RewardModelSettings(
        model=model,
        data=data,
        out=place / "out",
        steps=20,
        batch_size=16,
        lr=3e-3,
        warmup_steps=2,
        threads=1,
        precision="fp32",
    )
    return training.run(settings)


@pytest.fixture
def scorer(folder: Path) -> RewardScorer:
    return RewardScorer(folder, rows=4, device=torch.device("cpu"))


@pytest.fixture
async def desk(scorer: RewardScorer) -> AsyncIterator[BatchQueue]:
    desk, stopping = BatchQueue(scorer, limit=40), asyncio.Event()
    work = asyncio.create_task(desk.run(stopping))
    yield desk
    stopping.set()
    await work


@pytest.fixture
async def http(desk: BatchQueue) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(desk))
    async with httpx.AsyncClient(transport=transport, base_url="http://rewards") as client:
        yield client


def _item(move: str, prompt: str = BOARD) -> dict[str, object]:
    return {"prompt": prompt, "response": f"\\boxed{{{move}}}"}


async def _rewards(http: httpx.AsyncClient, items: list[dict[str, object]]) -> list[float]:
    response = await http.post("/v1/rewards", json={"items": items})
    assert response.status_code == 200, response.text
    rewards: list[float] = response.json()["rewards"]
    return rewards


async def test_what_was_learned_is_what_is_answered(http: httpx.AsyncClient) -> None:
    good, bad = await _rewards(http, [_item(m) for m in GOOD]), await _rewards(http, [_item(m) for m in BAD])
    assert min(good) > max(bad)
    assert min(good) > 0 > max(bad)  # the centre stands between them


async def test_an_answer_has_the_same_bits_whatever_stands_beside_it(http: httpx.AsyncClient) -> None:
    items = [_item(move, prompt=BOARD[: 60 + n]) for n, move in enumerate(GOOD + BAD)]
    together = await _rewards(http, items)
    alone = [(await _rewards(http, [item]))[0] for item in items]
    crowd = await asyncio.gather(*(_rewards(http, [item, items[0]]) for item in reversed(items)))
    assert together == alone == [first for first, _ in reversed(crowd)]


async def test_messages_and_prompt_with_response_are_one_question(http: httpx.AsyncClient) -> None:
    messages = [{"role": "user", "content": BOARD}, {"role": "assistant", "content": "\\boxed{e2e4}"}]
    three = [{"messages": messages}, {"prompt": messages[:1], "response": "\\boxed{e2e4}"}, _item("e2e4")]
    assert len(set(await _rewards(http, three))) == 1


async def test_the_model_says_who_it_is(http: httpx.AsyncClient, scorer: RewardScorer) -> None:
    told = (await http.get("/v1/model")).json()
    assert told == {"sha256": scorer.card.sha256, "style": "mover-squares"}
    answered = (await http.post("/v1/rewards", json={"items": [_item("e2e4")]})).json()
    assert answered["sha256"] == told["sha256"]
    assert (await http.get("/readyz")).json() == {"status": "ready"}
    assert "rookery_reward_model_answers_total" in (await http.get("/metrics")).text


@pytest.mark.parametrize(
    ("item", "quoted"),
    [
        ({"prompt": "x"}, "give messages, or prompt and response"),
        ({"messages": [], "prompt": "x", "response": "y"}, "give messages, or prompt and response"),
        ({"messages": [{"role": "user", "content": "hello"}]}, "hello"),
        ({"prompt": "e2" * 500, "response": "y"}, "tokens; the reward model accepts 384"),
        ({"response": 3}, "items.0.response"),
    ],
)
async def test_nonsense_is_refused_and_quoted(
    http: httpx.AsyncClient, item: dict[str, object], quoted: str
) -> None:
    response = await http.post("/v1/rewards", json={"items": [item]})
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert quoted in response.json()["detail"]


async def test_too_many_are_told_to_come_back(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/rewards", json={"items": [_item("e2e4")] * 41})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"


def test_a_stretched_model_reads_as_far_as_it_is_trained(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "model")
    config, card = (json.loads((copy / name).read_text()) for name in ("config.json", CARD))
    stretch = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 384}
    config["rope_parameters"] |= stretch
    (copy / "config.json").write_text(json.dumps(config))
    card["files"]["config.json"] = file_sha256(copy / "config.json")
    (copy / CARD).write_text(json.dumps(card))
    assert RewardScorer(copy, rows=1, device=torch.device("cpu")).width([1] * 700) == 704


async def test_a_reward_that_is_no_number_is_a_fault(desk: BatchQueue, scorer: RewardScorer) -> None:
    with torch.no_grad():
        scorer._model.score.weight.fill_(math.nan)
    text = scorer.encode([{"role": "user", "content": BOARD}, {"role": "assistant", "content": "x"}])
    with pytest.raises(RookeryError, match="not all finite"):
        await desk.rewards([text])
    with torch.no_grad():
        scorer._model.score.weight.fill_(0.5)
    assert math.isfinite((await desk.rewards([text]))[0])


async def test_hostile_callers_are_refused(desk: BatchQueue) -> None:
    service = Service("reward-model", create_app(desk), "127.0.0.1", free_port(), "PORT")
    async with running(service) as client:
        url = str(client.base_url).rstrip("/")
        answers = await asyncio.to_thread(hostile.attack_http, url, ["/v1/rewards"])
        await asyncio.to_thread(openapi.attack, url)
    assert set(answers) <= {0, 100, 400, 404, 405, 413, 422}
