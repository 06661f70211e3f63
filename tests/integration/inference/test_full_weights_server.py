"""The real vLLM serving whole models: GPT-2, to which it can add no adapter. One server for the module."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rookery.clients import Generation, InferenceClient
from rookery.errors import Conflict, InvalidInput, NotFound
from rookery.prompt import render
from rookery.streams import RunStreams
from rookery.trace import Adapter, PolicyVersion, Prompt, Sampling
from tests.builders import position
from tests.gpt2 import write_rookworld_model
from tests.integration.inference.server_process import Server
from tests.servers import served_version
from tests.waiting import eventually

pytestmark = [pytest.mark.vllm, pytest.mark.redis, pytest.mark.torch, pytest.mark.timeout(600)]

SAMPLING = Sampling(max_tokens=12)
FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Server]:
    base = write_rookworld_model(tmp_path_factory.mktemp("model") / "tiny", initializer_range=0.2)
    server = Server(base, tmp_path_factory.mktemp("runs"), redis_url, ("--full-weights",))
    try:
        server.start()
        yield server
    finally:
        server.kill()


def model(server: Server, number: int, **config: Any) -> Adapter:
    """Version `number`, its weights drawn with the seed `number`; 0 is the base."""
    import torch
    from safetensors.torch import save_file

    folder = server.root / f"v{number}"
    write_rookworld_model(folder, seed=number, initializer_range=0.2, **config)
    save_file({"0.exp_avg": torch.ones(2)}, folder / "optimizer.safetensors")  # as in a commit
    data = (folder / "model.safetensors").read_bytes()
    return Adapter(PolicyVersion(number, hashlib.sha256(data).hexdigest()), str(folder), "tiny")


def load_tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def prompt(fen: str = FEN) -> Prompt:
    return render(position(fen), style="rookworld-p")


def mismatch(server: Server, group: Generation, number: int) -> float:
    """The largest difference of log-probabilities from those of transformers under version `number`."""
    import torch
    from transformers import GPT2LMHeadModel

    other = GPT2LMHeadModel.from_pretrained(server.root / f"v{number}").eval()
    asked, worst = len(group.prompt_token_ids), 0.0
    for completion in group.completions:
        ids = torch.tensor([group.prompt_token_ids + completion.token_ids])
        with torch.no_grad():
            logs = other(ids).logits.log_softmax(-1)[0, asked - 1 : -1]
        own = logs.gather(1, ids[0, asked:, None])[:, 0]
        worst = max(worst, float((own - torch.tensor(completion.logprobs)).abs().max()))
    return worst


async def test_the_published_version_is_loaded_and_then_ready(
    server: Server, streams: RunStreams, client: InferenceClient
) -> None:
    assert server.wait_for("/readyz", 503).json()["reason"] == "no policy published yet"
    first = model(server, 0)
    streams.policy.publish(first, epoch=streams.take_over())
    server.wait_for("/readyz", 200)
    assert await client.adapter() == first


async def test_a_version_answers_under_its_name_and_the_alias_and_nothing_else_does(
    server: Server, client: InferenceClient
) -> None:
    assert set(await client.served()) == {"policy-v000000", "policy"}
    group = await client.complete(prompt(), model="policy-v000000", count=4, sampling=SAMPLING, seed=7)
    again = await client.complete(prompt(), model="policy", count=4, sampling=SAMPLING, seed=7)
    assert group == again
    assert mismatch(server, group, 0) < 1e-5
    with pytest.raises(NotFound):
        await client.complete(prompt(), model="tiny", count=1, sampling=SAMPLING, seed=0)


async def test_a_model_that_knows_no_chat_is_shown_the_texts(server: Server, client: InferenceClient) -> None:
    asked = render(position(FEN), style="fen")
    group = await client.complete(asked, model="policy-v000000", count=2, sampling=SAMPLING, seed=7)
    text = "".join(message.content for message in asked.messages)
    assert list(group.prompt_token_ids) == load_tokenizer(server.root / "v0").encode(text).ids
    assert mismatch(server, group, 0) < 1e-5


async def test_new_weights_take_the_place_of_the_old_ones(server: Server, client: InferenceClient) -> None:
    """The prompt is that of the test before, so its keys and values lie in the prefix cache: they must go."""
    done = await client.reload(model(server, 1))

    assert done["changed"]
    assert done["canary"]["max_difference"] > 0.0
    assert {"verify", "drain", "load", "canary", "flip", "total"} <= set(done["seconds"])
    group = await client.complete(prompt(), model="policy-v000001", count=4, sampling=SAMPLING, seed=7)
    assert mismatch(server, group, 1) < 1e-5
    assert mismatch(server, group, 0) > 1e-2
    with pytest.raises(NotFound):
        await client.complete(prompt(), model="policy-v000000", count=1, sampling=SAMPLING, seed=0)
    async with httpx.AsyncClient(base_url=server.url) as http:
        body = {"model": "policy", "prompt": "P: ", "max_tokens": 1}
        assert (await http.post("/v1/completions", json=body)).json()["model"] == "policy-v000001"


async def test_refusals_keep_the_old_policy(server: Server, client: InferenceClient) -> None:
    served = await client.adapter()
    assert served
    fine = model(server, 2)
    assert (await client.reload(served))["changed"] is False
    for conflicting in (
        Adapter(PolicyVersion(1, "0" * 64), served.path, "tiny"),
        Adapter(PolicyVersion(0, "0" * 64), served.path, "tiny"),
    ):
        with pytest.raises(Conflict):
            await client.reload(conflicting)
    for bad in (
        Adapter(fine.version, "/etc", "tiny"),
        Adapter(fine.version, fine.path, "another"),
        Adapter(PolicyVersion(2, "0" * 64), fine.path, "tiny"),
        model(server, 3, n_layer=3),
    ):
        with pytest.raises(InvalidInput):
            await client.reload(bad)
    assert await client.adapter() == served
    await client.complete(prompt(), model=served.version.name, count=1, sampling=SAMPLING, seed=0)


async def test_weights_that_are_no_numbers_are_taken_back(server: Server, client: InferenceClient) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    sick = model(server, 2)
    weights = load_file(Path(sick.path) / "model.safetensors")
    weights["transformer.ln_f.bias"][0] = torch.nan
    save_file(weights, Path(sick.path) / "model.safetensors")
    sha256 = hashlib.sha256((Path(sick.path) / "model.safetensors").read_bytes()).hexdigest()
    with pytest.raises(InvalidInput, match="canary"):
        await client.reload(Adapter(PolicyVersion(2, sha256), sick.path, "tiny"))

    group = await client.complete(prompt(), model="policy-v000001", count=4, sampling=SAMPLING, seed=9)
    assert mismatch(server, group, 1) < 1e-5


async def test_under_load_each_group_is_of_the_version_it_names(
    server: Server, client: InferenceClient
) -> None:
    groups: list[tuple[int, Generation]] = []
    gone = 0
    stop = False

    async def ask(caller: int) -> None:
        nonlocal gone
        turn = 0
        while not stop:
            version = await served_version(client)
            assert version
            turn += 1
            try:
                group = await client.complete(
                    prompt(), model=version.name, count=4, sampling=SAMPLING, seed=1000 * caller + turn
                )
            except NotFound:
                gone += 1
                continue
            groups.append((version.number, group))

    callers = [asyncio.create_task(ask(number)) for number in range(6)]
    versions = {number: model(server, number) for number in range(10, 15)}
    for number in versions:
        await client.reload(versions[number])
        await asyncio.sleep(0.3)
    stop = True
    await asyncio.gather(*callers)

    assert len({number for number, _ in groups}) >= 4
    newest = {number: [g for n, g in groups if n == number] for number, _ in groups}
    for number, made in newest.items():
        for group in (made[0], made[-1]):  # next to a swap on either side
            assert mismatch(server, group, number) < 1e-5, number


async def test_after_a_rollback_the_record_decides(
    server: Server, streams: RunStreams, client: InferenceClient
) -> None:
    back = model(server, 10)
    await client.reload(back, rollback=True)
    group = await client.complete(prompt(), model="policy-v000010", count=2, sampling=SAMPLING, seed=1)
    assert mismatch(server, group, 10) < 1e-5

    newest = model(server, 14)
    streams.policy.publish(newest, epoch=streams.take_over())

    async def is_newest() -> bool:
        return await client.adapter() == newest

    await eventually(is_newest, every_s=0.2)
    async with httpx.AsyncClient(base_url=server.url) as http:
        assert 'rookery_reload_seconds_count{stage="drain"}' in (await http.get("/metrics")).text
