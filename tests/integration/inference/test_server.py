"""The real vLLM with the real Redis: versions, reloads under load, a kill. One server for the module."""

import asyncio
import hashlib
import json
import resource
import shlex
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import chess
import httpx
import pytest

from bench.noise_adapter import write_adapter
from rookery.access import Access
from rookery.clients import Generation, InferenceClient
from rookery.connections import raise_descriptor_limit
from rookery.errors import Conflict, ContextExceeded, InvalidInput, NotFound
from rookery.hub import identity
from rookery.prompt import render
from rookery.streams import RunStreams
from rookery.trace import Adapter, Message, PolicyVersion, Prompt, Sampling, policy_name
from tests import hostile
from tests.boards import random_boards
from tests.builders import position
from tests.conftest import ROOT
from tests.curl import curls
from tests.integration.inference.server_process import Server
from tests.servers import served_version
from tests.waiting import eventually, until

pytestmark = [pytest.mark.vllm, pytest.mark.redis, pytest.mark.torch, pytest.mark.timeout(600)]

ACCESS = Access("a-token-for-the-tests-0123456789")
ROLLOUT = Sampling(temperature=1.0, max_tokens=12)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder of another machine, and the URL under which it gives out its files."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as http:
        threading.Thread(target=http.serve_forever).start()
        yield folder, f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, elsewhere: tuple[Path, str]
) -> Iterator[Server]:
    from services.trainer.tiny import build_tiny

    model = build_tiny(
        tmp_path_factory.mktemp("model") / "tiny", hidden_size=64, layers=2, intermediate_size=128
    )
    template = model / "chat_template.jinja"
    template.write_text(template.read_text().replace("'<|assistant|>' }}", "'<|assistant|><think>' }}"))
    flags = ("--max-loras", "3", "--max-lora-rank", "8", "--leases", "1", "--adapter-url", elsewhere[1])
    server = Server(model, tmp_path_factory.mktemp("adapters"), redis_url, flags, ACCESS)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def adapter(server: Server, version: int, *, name: str = "", scale: float = 0.1, **config: object) -> Adapter:
    folder = server.root / (name or f"v{version}")
    return write_adapter(folder, server.model, version=version, scale=scale, config=config)


async def until_served(client: InferenceClient, adapter: Adapter) -> None:
    """Returns once the server serves it."""

    async def holds() -> bool:
        return await served_version(client) == adapter.version

    await eventually(holds)


def prompt(fen: str = chess.STARTING_FEN) -> Prompt:
    return render(position(fen), style="mover-squares")


def fens(count: int) -> list[str]:
    return [board.fen() for board in random_boards(count, seed=0, plies=(8, 60))]


def test_not_ready_before_a_policy_is_published(server: Server) -> None:
    ready = server.wait_for("/readyz", 503)

    assert ready.json() == {"status": "not ready", "reason": "no policy published yet"}
    assert httpx.get(f"{server.url}/policy", headers=ACCESS.headers).status_code == 503


async def test_the_published_policy_is_loaded_and_then_ready(
    server: Server, streams: RunStreams, client: InferenceClient
) -> None:
    base = adapter(server, 0, scale=0.0)
    streams.policy.publish(base, epoch=streams.take_over())

    server.wait_for("/readyz", 200)

    assert await served_version(client) == base.version
    async with httpx.AsyncClient(base_url=server.url, headers=ACCESS.headers) as http:
        described = (await http.get("/policy")).json()
    assert described == {
        "version": 0,
        "sha256": base.version.sha256,
        "name": "policy-v000000",
        "path": base.path,
        "base_model": "tiny",
    }


async def test_a_group_comes_with_its_tokens_logprobs_and_seeds(client: InferenceClient) -> None:
    ask = {"model": "policy-v000000", "count": 4, "sampling": ROLLOUT}

    one, again = [await client.complete(prompt(), **ask, seed=7) for _ in range(2)]
    shifted = await client.complete(prompt(), **ask, seed=8)

    assert one == again
    assert [c.text for c in shifted.completions[:3]] == [c.text for c in one.completions[1:]]
    assert len(one.prompt_token_ids) > 64
    for completion in one.completions:
        assert completion.text.startswith("<think>"), "which the prompt opens"
        assert len(completion.token_ids) == len(completion.logprobs) > 0
        assert all(logprob <= 0.0 for logprob in completion.logprobs)


async def test_a_prompt_that_exceeds_the_context_is_told_from_other_refusals(client: InferenceClient) -> None:
    long = replace(prompt(), messages=(Message("user", "e4 e5 " * 20_000),))
    with pytest.raises(ContextExceeded, match=r"400 .*maximum context length is \d+ tokens"):
        await client.complete(long, model="policy-v000000", count=1, sampling=ROLLOUT, seed=1)
    with pytest.raises(InvalidInput) as refused:
        await client.complete(
            prompt(), model="policy-v000000", count=1, sampling=Sampling(temperature=-1.0), seed=1
        )
    assert not isinstance(refused.value, ContextExceeded)


async def test_a_version_on_another_machine_is_downloaded(
    server: Server, client: InferenceClient, elsewhere: tuple[Path, str]
) -> None:
    folder, url = elsewhere
    far = write_adapter(folder / policy_name(500), server.model, version=500, scale=0.1)
    names = ("adapter_config.json", "adapter_model.safetensors")
    digests = {name: hashlib.sha256((Path(far.path) / name).read_bytes()).hexdigest() for name in names}
    sums = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    with pytest.raises(InvalidInput, match=f"{url}/policy-v000500/SHA256SUMS: 404"):
        await client.reload(far)
    (Path(far.path) / "SHA256SUMS").write_text(sums)

    await client.reload(far)

    served = await client.adapter()
    assert served and served.version == far.version
    assert Path(served.path).is_relative_to(server.root)
    await client.reload(adapter(server, 0, name="again", scale=0.0), rollback=True)


async def test_a_new_version_answers_differently_and_the_alias_moves(
    server: Server, client: InferenceClient
) -> None:
    done = await client.reload(adapter(server, 1))

    assert done["changed"]
    assert done["canary"]["max_difference"] > 0.0
    assert {"verify", "load", "canary", "flip", "total"} == set(done["seconds"])
    greedy = Sampling(temperature=0.0, max_tokens=12)
    answers = {
        model: (await client.complete(prompt(), model=model, count=1, sampling=greedy, seed=0)).completions[0]
        for model in ("tiny", "policy-v000000", "policy-v000001", "policy")
    }
    assert answers["policy-v000000"].logprobs == answers["tiny"].logprobs
    assert answers["policy-v000001"].logprobs != answers["tiny"].logprobs
    assert answers["policy"] == answers["policy-v000001"]


async def test_its_logprobs_are_those_of_peft(server: Server, client: InferenceClient) -> None:
    await check_against_peft(server, client, 1)


async def check_against_peft(server: Server, client: InferenceClient, version: int) -> None:
    groups = [
        await client.complete(prompt(fen), model=policy_name(version), count=4, sampling=ROLLOUT, seed=seed)
        for seed, fen in enumerate(fens(4))
    ]
    check_logprobs(server, version, groups)


def check_logprobs(server: Server, version: int, groups: Iterable[Generation]) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(server.model, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, server.root / f"v{version}").eval()
    for group in groups:
        asked = len(group.prompt_token_ids)
        for completion in group.completions:
            ids = torch.tensor([group.prompt_token_ids + completion.token_ids])
            with torch.no_grad():
                logprobs = model(ids).logits.log_softmax(-1)[0, asked - 1 : -1]
            ours = logprobs.gather(1, ids[0, asked:, None])[:, 0]
            assert torch.allclose(ours, torch.tensor(completion.logprobs), rtol=0.0, atol=1e-5)


async def test_refusals_keep_the_old_policy(server: Server, client: InferenceClient) -> None:
    served = await served_version(client)
    assert served
    first = Adapter(PolicyVersion(0, "0" * 64), str(server.root / "v0"), "tiny")
    current = Adapter(served, str(server.root / "v1"), "tiny")
    fine = adapter(server, 2)

    assert (await client.reload(current))["changed"] is False
    for conflicting in (first, Adapter(PolicyVersion(1, "0" * 64), current.path, "tiny")):
        with pytest.raises(Conflict):
            await client.reload(conflicting)
    for bad in (
        adapter(server, 2, name="dora", use_dora=True),
        Adapter(fine.version, "/etc", "tiny"),
        Adapter(fine.version, fine.path, "another"),
        Adapter(fine.version, fine.path, f"tiny@sha256:{'0' * 64}"),
        Adapter(PolicyVersion(2, "0" * 64), fine.path, "tiny"),
        adapter(server, 2, name="nan", scale=float("nan")),
    ):
        with pytest.raises(InvalidInput):
            await client.reload(bad)

    assert await served_version(client) == served
    with pytest.raises(NotFound):
        await client.complete(prompt(), model="policy-v000002", count=1, sampling=ROLLOUT, seed=0)
    await client.complete(prompt(), model="policy", count=1, sampling=ROLLOUT, seed=0)


async def test_weights_that_only_vllm_refuses_keep_the_old_policy(
    server: Server, client: InferenceClient, tmp_path: Path
) -> None:
    from services.trainer.tiny import build_tiny

    other = build_tiny(tmp_path / "wide", hidden_size=96, layers=2, intermediate_size=160)
    wrong = write_adapter(server.root / "wide", other, version=2)

    with pytest.raises(InvalidInput, match="vLLM cannot load policy-v000002"):
        await client.reload(Adapter(wrong.version, wrong.path, "tiny"))

    assert (await served_version(client) or PolicyVersion(-1, "")).number == 1
    await client.complete(prompt(), model="policy", count=1, sampling=ROLLOUT, seed=0)


async def test_an_adapter_that_vllm_does_not_apply_keeps_the_old_policy(
    server: Server, client: InferenceClient
) -> None:
    """Its tensors are for layers that the model has not: vLLM passes them over without a word."""
    adrift = adapter(server, 2, name="adrift")
    weights = Path(adrift.path) / "adapter_model.safetensors"
    data = weights.read_bytes().replace(b".layers.0.", b".layers.7.").replace(b".layers.1.", b".layers.8.")
    weights.write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()

    with pytest.raises(
        InvalidInput, match="policy-v000002 answers the canary exactly as the base model does"
    ):
        await client.reload(replace(adrift, version=PolicyVersion(2, sha256)))

    assert (await served_version(client) or PolicyVersion(-1, "")).number == 1


async def test_a_first_step_that_changes_next_to_nothing_is_served(
    server: Server, client: InferenceClient
) -> None:
    served = await client.adapter()
    assert served
    small = adapter(server, 2, name="small", scale=1e-12)
    by_content = replace(small, base_model=identity(str(server.model)).replace("tiny", "elsewhere/tiny"))

    assert (await client.reload(by_content))["changed"], "known by its weights, whatever it is called"
    await client.reload(served, rollback=True)


async def test_reloads_under_load_fail_no_request_and_mix_no_versions(
    server: Server, client: InferenceClient
) -> None:
    boards = fens(64)
    stop = asyncio.Event()
    answered = 0
    groups: dict[int, list[Generation]] = {}

    async def ask() -> None:
        nonlocal answered
        while not stop.is_set():
            version = await served_version(client)
            assert version
            group = await client.complete(
                prompt(boards[answered % 64]), model=version.name, count=8, sampling=ROLLOUT, seed=answered
            )
            assert len(group.completions) == 8
            answered += 1
            groups.setdefault(version.number, []).append(group)

    callers = [asyncio.create_task(ask()) for _ in range(6)]
    for number in range(3, 11):
        await client.reload(adapter(server, number))
        await asyncio.sleep(0.3)
    stop.set()
    await asyncio.gather(*callers)

    assert answered > 8
    assert len(groups) > 2
    for version, of_version in groups.items():
        if version >= 3:
            check_logprobs(server, version, of_version[-2:])
    assert (await served_version(client) or PolicyVersion(-1, "")).number == 10


async def test_a_burst_larger_than_a_batch_survives(client: InferenceClient) -> None:
    """Seeded prompts cut in two by the token budget kill vLLM's CPU worker: ours are never cut."""
    groups = await asyncio.gather(
        *(
            client.complete(prompt(fen), model="policy", count=8, sampling=ROLLOUT, seed=seed)
            for seed, fen in enumerate(fens(64))
        )
    )

    assert len(groups) == 64


async def test_only_the_newest_versions_keep_their_names(server: Server) -> None:
    names = ["policy", "policy-v000009", "policy-v000010", "tiny"]
    async with httpx.AsyncClient(base_url=server.url, headers=ACCESS.headers) as http:
        cards = (await http.get("/v1/models")).json()["data"]
        assert sorted(card["id"] for card in cards) == names
        for card in cards:
            one = (await http.get(f"/v1/models/{card['id']}")).json()
            assert (one["id"], one["root"], one["object"]) == (card["id"], card["root"], "model")
        missing = await http.get("/v1/models/policy-v000008")
        assert (missing.status_code, missing.json()["error"]["param"]) == (404, "model")
    roots = {card["id"]: Path(card["root"]).name for card in cards}
    assert roots["policy"] == roots["policy-v000010"] == "v10"


async def test_several_greedy_answers_are_equal(client: InferenceClient) -> None:
    ask = {"model": "policy", "sampling": replace(ROLLOUT, temperature=0.0), "seed": 0}
    (one,) = (await client.complete(prompt(), **ask, count=1)).completions
    several = (await client.complete(prompt(), **ask, count=3)).completions
    assert [completion.token_ids for completion in several] == [one.token_ids] * 3


async def test_a_missed_reload_is_caught_up_from_the_record(
    server: Server, streams: RunStreams, client: InferenceClient
) -> None:
    missed = adapter(server, 11)
    streams.policy.publish(missed, epoch=streams.take_over())

    await until_served(client, missed)


async def test_a_run_that_went_back_is_followed(
    server: Server, streams: RunStreams, client: InferenceClient
) -> None:
    """Over several versions, whose numbers, names and paths come again with other bytes."""
    await check_against_peft(server, client, 11)  # its prompts are in the prefix cache now
    again = []
    for number in (9, 10, 11):
        shutil.rmtree(server.root / f"v{number}")
        again.append(adapter(server, number, scale=0.2))

    streams.policy.publish(again[0], epoch=streams.take_over())
    await until_served(client, again[0])
    with pytest.raises(NotFound):
        await client.complete(prompt(), model="policy-v000011", count=1, sampling=ROLLOUT, seed=0)
    for later in again[1:]:
        streams.policy.publish(later, epoch=streams.take_over())
        await client.reload(later)

    assert await served_version(client) == again[-1].version
    for number in (10, 11):
        await check_against_peft(server, client, number)
    for name in await client.served():
        await client.complete(prompt(), model=name, count=1, sampling=ROLLOUT, seed=0)


def test_our_metrics_stand_beside_vllms(server: Server) -> None:
    text = httpx.get(f"{server.url}/metrics").text

    assert "rookery_policy_version_served 11.0" in text
    assert 'rookery_reloads_total{result="loaded"}' in text
    assert 'rookery_reloads_total{result="invalid-input"}' in text
    assert 'rookery_reload_seconds_count{stage="load"}' in text
    assert "vllm:num_requests_running" in text


def test_a_bad_body_gets_a_problem_document(server: Server) -> None:
    answer = httpx.post(f"{server.url}/reload", json={"version": -1}, headers=ACCESS.headers)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert "body.version" in answer.json()["detail"]


async def test_no_route_answers_without_the_token(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=30.0) as http:
        ours = ("/reload", "/lease", "/policy", "/sleep", "/wake_up")
        for path in (
            *ours,
            "/v1/models",
            "/v1/models/policy",
            "/v1/chat/completions",
            "/v1/completions",
            "/health",
            "/version",
            "/ping",
            "/openapi.json",
            "/docs",
            *CLOSED,
        ):
            for method in ("GET", "POST"):
                answer = await http.request(method, path, json={})
                assert (path, answer.status_code) == (path, 401)
                assert answer.headers["www-authenticate"] == 'Bearer realm="rookery"'
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await http.get(path)).status_code == 200


CLOSED = (
    "/invocations", "/tokenize", "/load", "/pause", "/resume",
    "/update_weights", "/collective_rpc", "/reset_prefix_cache", "/server_info", "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter", "/v1/responses", "/v1/messages", "/v1/systemone", "/generative_scoring",
    "/v1/chat/completions/render", "/v1/chat/completions/derender", "/v1/chat/completions/batch",
    "/inference/v1/generate", "/inference/v1/abort_requests", "/scale_elastic_ep", "/v1/decisions",
    "/adapters", "/kv_event_sources", "/abort_requests", "/release_kv_cache_memory",
)  # fmt: skip
"""Those that vLLM 0.32 and 0.33 have, by default, in its development mode or with adapters loaded by name."""


async def test_what_we_do_not_need_of_vllm_is_closed(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, headers=ACCESS.headers, timeout=30.0) as http:
        for path in CLOSED:
            for method in ("GET", "POST"):
                answer = await http.request(method, path, json={"model": "policy", "prompt": "e4"})
                assert (path, answer.status_code) == (path, 404)
        assert (await http.post("/sleep")).status_code == 409, "ours, which needs --sleep"
        ask = {"model": "policy", "prompt": "e4", "max_tokens": 1}
        assert (await http.post("/v1/completions", json=ask)).status_code == 200
        many = await http.post("/v1/completions", json={**ask, "n": 1025})
        assert (many.status_code, "1024" in many.text) == (400, True)
        embeds = await http.post("/v1/completions", json={**ask, "prompt": None, "prompt_embeds": "AAAA"})
        assert embeds.status_code == 400
        by_name = await http.post("/v1/completions", json={**ask, "model": "someone/adapter"})
        assert by_name.status_code == 404
        preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        assert "access-control-allow-origin" not in (await http.options("/reload", headers=preflight)).headers


async def test_a_move_is_asked_for_in_the_style_of_the_model(server: Server) -> None:
    (command,) = (c for c in curls(ROOT / "services/inference/server/README.md") if "/v1/move" in c)
    body = json.loads(shlex.split(command.replace("\\\n", " "))[-1])
    async with httpx.AsyncClient(base_url=server.url, headers=ACCESS.headers, timeout=60.0) as http:
        answer = (await http.post("/v1/move", json={**body, "style": "fen", "max_tokens": 8})).json()
        assert (answer["fen"], answer["style"], answer["tokens"]) == (body["fen"], "fen", 8)
        assert (answer["move"] is None) == (answer["outcome"] != "legal")
        for wrong, status in (
            ({"fen": "8/8/8/8/8/8/8/8 w - - 0 1"}, 422),
            ({"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"}, 422),  # stalemate
            ({**body, "model": "nobody", "style": "fen"}, 404),
            ({**body, "moves": []}, 422),
        ):
            assert (await http.post("/v1/move", json=wrong)).status_code == status, wrong


async def test_only_the_text_of_a_few_known_tokens_is_told(server: Server) -> None:
    async with httpx.AsyncClient(base_url=server.url, headers=ACCESS.headers) as http:
        for tokens, status in (([], 200), ([0] * 64, 200), ([0] * 65, 422), ([-1], 422), ([1 << 40], 422)):
            answer = await http.post("/detokenize", json={"tokens": tokens})
            assert (tokens, answer.status_code) == (tokens, status)


async def test_hostile_callers_do_not_harm_it(server: Server, client: InferenceClient) -> None:
    paths = [
        "/reload",
        "/lease",
        "/lease/0",
        "/policy",
        "/detokenize",
        "/v1/move",
        "/v1/models/x",
        "/v1/completions",
        "/v1/chat/completions",
    ]
    answers = await asyncio.to_thread(hostile.attack_http, server.url, paths, access=ACCESS)
    raise_descriptor_limit()
    assert server.process
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (hostile.DESCRIPTORS, hard))
    cpu_s = await asyncio.to_thread(hostile.healthz_cpu_s, server.url, server.process.pid)

    assert cpu_s < 0.1
    assert set(answers) <= {0, 100, 200, 400, 401, 404, 405, 413, 422}  # 200: of GET /policy
    assert await served_version(client)


async def test_versions_with_a_canary_are_judged_in_float32(
    server: Server, client: InferenceClient, tmp_path: Path
) -> None:
    """In bfloat16: test_served_canary.py."""
    from tests.integration.inference import canaries

    make = canaries.committing(server, tmp_path, first=12)
    await canaries.check_that_trained_versions_are_served_under_load(client, make)
    await canaries.check_that_wrong_weights_are_refused(client, make)
    await canaries.check_that_a_canary_is_optional(client, make)


async def test_a_leased_version_answers_though_newer_ones_come(
    server: Server, client: InferenceClient
) -> None:
    leased = await client.adapter()
    assert leased

    async def answer() -> tuple[int, ...]:
        sampling = replace(ROLLOUT, temperature=0.0)
        model = leased.version.name
        done = await client.complete(prompt(), model=model, count=1, sampling=sampling, seed=0)
        return done.completions[0].token_ids

    with pytest.raises(NotFound, match="version 999 is not served"):
        await client.lease(999, seconds=60)
    assert await client.lease(leased.version.number, seconds=60) == leased.version
    before = await answer()
    # More than there are slots, so that vLLM must move adapters.
    for number in range(50, 58):
        newer = adapter(server, number)
        await client.reload(newer)
        assert await answer() == before
    with pytest.raises(Conflict, match=leased.version.name):
        await client.lease(newer.version.number, seconds=60)

    await client.end_lease(leased.version.number)

    with pytest.raises(NotFound):
        await answer()
    await client.reload(leased, rollback=True)


def test_killed_it_leaves_no_engine_behind(server: Server) -> None:
    server.stop(signal.SIGKILL)

    until(lambda: not server.processes(), log=lambda: str(server.processes()))
