"""vLLM and the trainer with tokenizers, templates and architectures of real models: the same prompts, the
same log-probabilities, answers that end. One server for each model; all but one are nightly."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from rookery.answers import OPENINGS
from rookery.clients import InferenceClient
from rookery.clients.completions import CHAT
from rookery.config.trainer import TrainerSettings
from rookery.episodes import environment
from rookery.hub import chat_template
from rookery.prompt import render
from rookery.tool_calls import SCHEMAS, can_call
from rookery.trace import Adapter, Completion, Outcome, Sampling, Trace, TraceGroup, Turn, Verdict
from tests.builders import position
from tests.chat_models import CHAT_MODELS, write_chat_model
from tests.integration.inference.server_process import Server

pytestmark = [pytest.mark.vllm, pytest.mark.torch, pytest.mark.timeout(600)]

IN_MAKE_TEST = "mistral"
MATRIX = [
    pytest.param(name, marks=[] if name == IN_MAKE_TEST else [pytest.mark.nightly]) for name in CHAT_MODELS
]
POSITION = position()
PROMPT = render(POSITION, style="fen-legal-san")
MESSAGES = [{"role": message.role, "content": message.content} for message in PROMPT.messages]


@dataclass
class Served:
    """A server of a random adapter, which the trainer has written, and the trainer's policy with it."""

    name: str
    server: Server
    settings: TrainerSettings
    policy: Any
    adapter: Adapter

    @property
    def client(self) -> InferenceClient:
        return InferenceClient(self.server.url, timeout_s=300.0)


@pytest.fixture(scope="module", params=MATRIX)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    import torch

    from services.trainer.model.policies import build_policy
    from services.trainer.versions import commits

    name, root = request.param, tmp_path_factory.mktemp("run")
    model = write_chat_model(name, root / "model")
    settings = TrainerSettings(model=model, run_dir=root, device="cpu", lora_rank=8)
    policy = build_policy(settings)
    with torch.no_grad():
        for weight in policy.parameters:
            weight.normal_(std=0.05)
    commit = commits.write(
        settings.adapters_dir, number=1, files=policy.version_files(), ledger=(), fingerprint={}
    )
    flags = ("--full-weights",) if name == "gpt2" else ("--max-lora-rank", "8")
    server = Server(model, settings.adapters_dir, "redis://127.0.0.1:1", ("--no-follow", *flags))
    try:
        server.start()
        server.wait_for("/readyz", 200)
        adapter = Adapter(commit.version, str(commit.folder), settings.base_identity)
        yield Served(name, server, settings, policy, adapter)
    finally:
        server.kill()


@pytest.fixture(scope="module")
def tokenizer(served: Served) -> Any:
    from services.trainer.finetune.model import load_chat_tokenizer

    return load_chat_tokenizer(Path(served.settings.model))


async def test_the_server_scores_answers_as_the_trainer_and_peft_do(served: Served, tokenizer: Any) -> None:
    from services.trainer.examples.chats import Chat, tokenize
    from services.trainer.training.mismatch import mismatch

    sampling = Sampling(max_tokens=24)
    async with served.client as client:
        await client.reload(served.adapter)
        answered = await client.complete(PROMPT, model="policy", count=4, sampling=sampling, seed=1)
        written = await client.complete(
            PROMPT, model="policy", count=1, sampling=sampling, seed=1, thinking=False
        )
    [example] = tokenize([Chat([*MESSAGES, {"role": "assistant", "content": "e4"}])], tokenizer)
    assert list(answered.prompt_token_ids) == list(example.prompt_ids), "the prompt that SFT teaches"
    assert answered.prompt_token_ids.count(tokenizer.bos_token_id) <= 1 or served.name == "smollm2"
    opened = tokenizer.decode(answered.prompt_token_ids).rstrip().endswith(OPENINGS)
    assert all(c.text.startswith("<think>") == opened for c in answered.completions)
    assert opened == (served.name == "qwen3-thinking")
    shown = tokenizer.decode(written.prompt_token_ids[-8:])
    assert shown.endswith("<think>\n\n</think>\n\n") == served.name.startswith("qwen3")

    verdict = Verdict(0.0, Outcome.LEGAL, "1")
    group = TraceGroup(
        "g", "r", POSITION, PROMPT, answered.prompt_token_ids, served.adapter.version, "m", sampling,
        tuple(Trace(f"g-{c.seed}", (Turn(c, verdict),)) for c in answered.completions), 0.0,
    )  # fmt: skip
    gap = mismatch(served.policy, [group], step=1, settings=served.settings)
    assert (gap["mismatch_mean"] < 1e-5, gap["mismatch_max"] < 5e-5) == (True, True), gap
    assert peft_gap(served, group) < 5e-5


def peft_gap(served: Served, group: TraceGroup) -> float:
    """The largest difference of log-probabilities from those in PEFT, or of the whole model."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder, asked = served.adapter.path, len(group.prompt_token_ids)
    base = folder if served.name == "gpt2" else served.settings.model
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    if served.name != "gpt2":
        model = PeftModel.from_pretrained(model, folder).eval()
    worst = 0.0
    for trace in group.traces:
        ids = torch.tensor([group.prompt_token_ids + trace.completion.token_ids])
        with torch.no_grad():
            logs = model(ids).logits[0, asked - 1 : -1].log_softmax(-1)
        scored = logs.gather(1, ids[0, asked:, None])[:, 0]
        worst = max(worst, float((scored - torch.tensor(trace.completion.logprobs)).abs().max()))
    return worst


def test_an_answer_ends_with_each_end_token_of_the_model(served: Served, tokenizer: Any) -> None:
    model = CHAT_MODELS[served.name]
    for end in {model.end, *model.stops}:
        number = tokenizer.convert_tokens_to_ids(end)
        body = {"model": "model", "messages": MESSAGES, "max_tokens": 5, "logit_bias": {str(number): 100}}
        answer = httpx.post(
            f"{served.server.url}/v1/chat/completions", json=body | {"return_token_ids": True}, timeout=300.0
        )
        assert answer.status_code == 200, answer.text
        [choice] = answer.json()["choices"]
        assert (choice["finish_reason"], choice["token_ids"]) == ("stop", [number]), end


async def test_a_call_of_a_tool_goes_on_in_its_tokens(served: Served, tokenizer: Any) -> None:
    """vLLM shows the tools though it parses no calls, and leaves these in the text."""
    if not can_call(chat_template(Path(served.settings.model))):
        pytest.skip("its template has no calls in JSON")

    async def judge(fen: str, response: str) -> Verdict:
        raise AssertionError("asked")

    made = environment("tools,calls=template")
    first = made.reset(POSITION, style="fen-legal-san", seed=1, judge=judge)
    thought = "Hm.\n</think>\n\n" if served.name == "qwen3-thinking" else ""
    sampled = f'{thought}<tool_call>\n{{"name": "legal_moves", "arguments": {{}}}}\n</tool_call>'
    text = f"<think>{sampled}" if thought else sampled
    step = await made.step(Turn(Completion(text, (), (), "stop", 0), None))
    assert step.prompt is not None
    async with served.client as client:
        await client.reload(served.adapter)
        before, after = [
            (await client.complete(p, model="policy", count=1, sampling=Sampling(max_tokens=1), seed=1))
            for p in (first, step.prompt)
        ]
    shown = tokenizer.decode(before.prompt_token_ids)
    assert all(tool["function"]["description"] in shown for tool in SCHEMAS)
    tokens = (*before.prompt_token_ids, *tokenizer(sampled + CHAT_MODELS[served.name].end)["input_ids"])
    assert after.prompt_token_ids[: len(tokens)] == tokens
    assert step.observation in tokenizer.decode(after.prompt_token_ids[len(tokens) :])

    body = {
        **CHAT.request_fields(first), "model": "policy", "max_tokens": 1, "skip_special_tokens": False,
        "logit_bias": {str(tokenizer.convert_tokens_to_ids("<tool_call>")): 100},
    }  # fmt: skip
    async with httpx.AsyncClient(base_url=served.server.url, timeout=300.0) as http:
        [choice] = (await http.post("/v1/chat/completions", json=body)).json()["choices"]
    assert choice["message"]["content"] == "<tool_call>"
