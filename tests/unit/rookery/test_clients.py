"""The typed clients: what they ask, what they make of answers, when they try again and when not."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import httpx
import pytest

from rookery.access import OPEN, Access
from rookery.clients import InferenceClient, RewardClient, ScoreItem, reward
from rookery.clients.score_items import TRIES
from rookery.codec import verdict_to_proto
from rookery.errors import Conflict, InvalidInput, NotFound, PeerFault, RookeryError, SetupError
from rookery.trace import Adapter, Completion, Message, Outcome, PolicyVersion, Prompt, Sampling, Verdict
from rookery.v1 import reward_pb2, reward_pb2_grpc
from tests.servers import serve_reward

ITEMS = [ScoreItem("fen-0", "a"), ScoreItem("fen-1", "b", truncated=True)]


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "PAUSES_S", (0.0,) * (TRIES - 1))


class ScriptedReward(reward_pb2_grpc.RewardServiceServicer):
    """Fails with the scripted codes, one a call, then judges every item by its place."""

    def __init__(self, *codes: grpc.StatusCode) -> None:
        self.codes = list(codes)
        self.requests: list[reward_pb2.ScoreBatchRequest] = []
        self.problem: reward_pb2.Problem | None = None

    async def ScoreBatch(  # noqa: N802
        self,
        request: reward_pb2.ScoreBatchRequest,
        context: grpc.aio.ServicerContext[reward_pb2.ScoreBatchRequest, reward_pb2.ScoreBatchResponse],
    ) -> reward_pb2.ScoreBatchResponse:
        self.requests.append(request)
        if self.codes:
            await context.abort(self.codes.pop(0), "as scripted")
        items = [
            reward_pb2.ScoreBatchItem(verdict=verdict_to_proto(judged(place)))
            for place in range(len(request.items))
        ]
        if self.problem:
            items[-1] = reward_pb2.ScoreBatchItem(problem=self.problem)
        return reward_pb2.ScoreBatchResponse(items=items)


def judged(place: int) -> Verdict:
    return Verdict(reward=-place / 4, outcome=Outcome.LEGAL, reward_version="test")


@asynccontextmanager
async def client_of(servicer: ScriptedReward) -> AsyncIterator[RewardClient]:
    async with serve_reward(servicer) as target, RewardClient(target, timeout_s=5.0) as client:
        yield client


async def test_verdicts_come_in_the_order_of_the_items() -> None:
    reward = ScriptedReward()
    async with client_of(reward) as client:
        assert await client.score(ITEMS, scheme="best") == [judged(0), judged(1)]
    sent = [(item.fen, item.response, item.truncated, item.scheme) for item in reward.requests[0].items]
    assert sent == [("fen-0", "a", False, "best"), ("fen-1", "b", True, "best")]


async def test_a_passing_fault_is_tried_again() -> None:
    codes = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED
    reward = ScriptedReward(*codes)
    async with client_of(reward) as client:
        assert len(await client.score(ITEMS)) == 2
    assert len(reward.requests) == 4


async def test_a_lasting_fault_ends_with_its_reason() -> None:
    reward = ScriptedReward(*[grpc.StatusCode.UNAVAILABLE] * TRIES)
    async with client_of(reward) as client:
        with pytest.raises(
            PeerFault, match=f"reward service: UNAVAILABLE as scripted after {TRIES} attempts"
        ):
            await client.score(ITEMS)
    assert len(reward.requests) == TRIES


async def test_a_refusal_is_not_tried_again() -> None:
    reward = ScriptedReward(grpc.StatusCode.INVALID_ARGUMENT)
    async with client_of(reward) as client:
        with pytest.raises(InvalidInput, match="INVALID_ARGUMENT as scripted"):
            await client.score(ITEMS)
    assert len(reward.requests) == 1


async def test_a_refused_item_is_quoted_and_not_tried_again() -> None:
    reward = ScriptedReward()
    reward.problem = reward_pb2.Problem(title="Invalid input", status=422, detail="no fen 'fen-1'")
    async with client_of(reward) as client:
        with pytest.raises(InvalidInput, match="Invalid input: no fen 'fen-1'"):
            await client.score(ITEMS)
    assert len(reward.requests) == 1


async def test_an_item_whose_engine_died_is_tried_again_and_is_never_a_reward() -> None:
    reward = ScriptedReward()
    reward.problem = reward_pb2.Problem(title="Engine fault", status=503, detail="stockfish died")
    async with client_of(reward) as client:
        with pytest.raises(PeerFault, match="Engine fault: stockfish died"):
            await client.score(ITEMS)
    assert len(reward.requests) == TRIES


# inference

Handler = Callable[[httpx.Request], httpx.Response]
PROMPT = Prompt("fen", (Message("user", "fen-0"),), "fen-0")
ADAPTER = Adapter(PolicyVersion(7, "ab"), "/adapters/7", "rook-tiny")


class ScriptedServer:
    """Stands where the network is: keeps each request, answers with what it was given.

    Its prompts end with `tail`; if that is None, it does not say how.
    """

    def __init__(self, answer: httpx.Response | httpx.HTTPError) -> None:
        self.answer = answer
        self.requests: list[httpx.Request] = []
        self.tail: str | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/detokenize":
            return (
                httpx.Response(404) if self.tail is None else httpx.Response(200, json={"prompt": self.tail})
            )
        self.requests.append(request)
        if isinstance(self.answer, httpx.HTTPError):
            raise self.answer
        return self.answer

    @property
    def sent(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.requests[-1].content)
        return body


@asynccontextmanager
async def inference(
    monkeypatch: pytest.MonkeyPatch,
    answer: httpx.Response | httpx.HTTPError,
    *,
    access: Access = OPEN,
    **options: Any,
) -> AsyncIterator[tuple[InferenceClient, ScriptedServer]]:
    server = ScriptedServer(answer)
    real = httpx.AsyncClient

    def client_on_the_server(**kwargs: Any) -> httpx.AsyncClient:
        return real(**{**kwargs, "transport": httpx.MockTransport(server)})

    monkeypatch.setattr(httpx, "AsyncClient", client_on_the_server)
    async with InferenceClient("http://inference:8000/", access=access, **options) as client:
        yield client, server


def choice(index: int, *, reason: str | None = "stop") -> dict[str, Any]:
    return {
        "index": index,
        "message": {"content": f"text {index}"},
        "token_ids": [10 + index, 20],
        "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -index}]},
        "finish_reason": reason,
    }


async def test_completions_carry_tokens_logprobs_and_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"prompt_token_ids": [1, 2], "choices": [choice(1, reason="length"), choice(0)]}
    async with inference(monkeypatch, httpx.Response(200, json=body)) as (client, server):
        generation = await client.complete(
            PROMPT, model="policy-v000007", count=2, sampling=Sampling(max_tokens=9), seed=100
        )
    assert generation.prompt_token_ids == (1, 2)
    first, second = generation.completions
    assert (first.text, first.token_ids, first.logprobs, first.seed) == ("text 0", (10, 20), (-0.5, 0.0), 100)
    assert (second.text, second.token_ids, second.logprobs, second.seed) == (
        "text 1",
        (11, 20),
        (-0.5, -1.0),
        101,
    )
    assert (first.truncated, second.truncated) == (False, True)
    sent = server.sent
    assert sent["model"] == "policy-v000007"
    assert sent["messages"] == [{"role": "user", "content": "fen-0"}]
    assert (sent["n"], sent["seed"], sent["max_tokens"]) == (2, 100, 9)


async def test_an_answer_that_has_begun_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"prompt_token_ids": [1, 2], "choices": [choice(0)]}
    begun = replace(PROMPT, messages=(*PROMPT.messages, Message("assistant", "\\boxed{")))
    async with inference(monkeypatch, httpx.Response(200, json=body)) as (client, server):
        await client.complete(begun, model="m", count=1, sampling=Sampling(), seed=0, thinking=False)
    sent = server.sent
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}
    assert sent["messages"][-1] == {"role": "assistant", "content": "\\boxed{"}
    assert (sent["add_generation_prompt"], sent["continue_final_message"]) == (False, True)


async def test_tools_are_shown_and_their_calls_stay_in_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"prompt_token_ids": [1, 2], "choices": [choice(0)]}
    called = (*PROMPT.messages, Message("assistant", "a call"), Message("tool", "e4"))
    async with inference(monkeypatch, httpx.Response(200, json=body)) as (client, server):
        await client.complete(
            replace(PROMPT, messages=called, tools='[{"type": "function"}]'),
            model="m", count=1, sampling=Sampling(), seed=0,
        )  # fmt: skip
    sent = server.sent
    assert (sent["tools"], sent["tool_choice"]) == ([{"type": "function"}], "none")
    assert sent["messages"][-1] == {"role": "tool", "content": "e4", "tool_call_id": "000000000"}
    assert sent["messages"][-2] == {"role": "assistant", "content": "a call"}


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ([choice(0), choice(1, reason="abort")], "choice 1: finish_reason 'abort' is none of"),
        ([choice(0, reason=None), choice(1)], "choice 0: finish_reason None is none of"),
        ([choice(0, reason="error"), choice(1)], "finish_reason 'error'"),
        ([choice(0)], "1 choices instead of 2"),
        ([choice(1), choice(1)], "2 choices instead of 2: \\[1, 1\\]"),
        ([choice(0), {**choice(1), "token_ids": [1]}], "choice 1: 1 tokens, 2 logprobs"),
        ([choice(0), {**choice(1), "logprobs": None}], "NoneType"),
        ([choice(0), {**choice(1), "logprobs": {"content": [{"logprob": math.nan}] * 2}}], "not finite"),
    ],
)
async def test_what_is_no_whole_group_is_a_fault_of_the_server(
    monkeypatch: pytest.MonkeyPatch, choices: list[dict[str, Any]], complaint: str
) -> None:
    body = json.dumps({"prompt_token_ids": [1, 2], "choices": choices})
    async with inference(monkeypatch, httpx.Response(200, content=body)) as (client, _):
        with pytest.raises(PeerFault, match=f"POST http://inference:8000/v1/chat/completions: .*{complaint}"):
            await client.complete(PROMPT, model="m", count=2, sampling=Sampling(), seed=0)


async def test_a_line_is_gone_on_with_and_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Prompt("rookworld", (Message("user", "P: fen "),), "fen")
    answer = {
        "index": 0,
        "text": "M: e2e4",
        "prompt_token_ids": [1, 2],
        "token_ids": [10, 20],
        "logprobs": {"token_logprobs": [-0.5, -0.25], "top_logprobs": []},
        "finish_reason": "length",
    }
    async with inference(monkeypatch, httpx.Response(200, json={"choices": [answer]})) as (client, server):
        generation = await client.complete(line, model="m", count=1, sampling=Sampling(max_tokens=2), seed=5)
    assert generation.prompt_token_ids == (1, 2)
    assert generation.completions == (Completion("M: e2e4", (10, 20), (-0.5, -0.25), "length", 5),)
    assert server.requests[-1].url.path == "/v1/completions"
    sent = server.sent
    assert (sent["prompt"], sent["logprobs"], sent["return_token_ids"]) == ("P: fen ", 0, True)
    assert not sent.keys() & {"messages", "top_logprobs"}


async def test_rollouts_sample_from_the_whole_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importance ratios are undefined for tokens that sampling had ruled out."""
    body = {"prompt_token_ids": [1], "choices": [choice(0)]}
    async with inference(monkeypatch, httpx.Response(200, json=body)) as (client, server):
        await client.complete(PROMPT, model="m", count=1, sampling=Sampling(), seed=0)
    sent = server.sent
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["min_p"]) == (1.0, 1.0, -1, 0.0)
    assert sent["return_token_ids"] is True


async def test_other_servers_are_sent_only_what_they_know(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"index": 0, "message": {"content": None}, "finish_reason": "length"}
    reply = httpx.Response(200, json={"choices": [answer]})
    async with inference(monkeypatch, reply, access=Access("sk-1")) as (client, server):
        generation = await client.complete(
            PROMPT, model="m", count=1, sampling=Sampling(top_k=5), seed=3, tokens=False
        )
    assert generation.completions == (Completion("", (), (), "length", 3),)
    assert server.sent.keys() == {"model", "messages", "n", "seed", "temperature", "top_p", "max_tokens"}
    assert server.requests[-1].headers["Authorization"] == "Bearer sk-1"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        (
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "\\boxed{e4}"}]},
                {"type": "text", "text": "\\boxed{d4}"},
            ],
            "<think>\\boxed{e4}</think>\\boxed{d4}",
        ),
        ([{"type": "thinking", "thinking": "\\boxed{e4}"}], "<think>\\boxed{e4}</think>"),
        ([], ""),
        ([{"type": "image_url", "image_url": "a"}], None),
        ([{"type": "thinking", "thinking": [{"type": "image_url"}]}], None),
        ({"text": "a"}, None),
        (7, None),
    ],
)
async def test_content_in_chunks_is_read_as_text(
    monkeypatch: pytest.MonkeyPatch, content: Any, text: str | None
) -> None:
    answer = {"index": 0, "message": {"content": content}, "finish_reason": "stop"}
    reply = httpx.Response(200, json={"choices": [answer]})
    ask: dict[str, Any] = {"model": "m", "count": 1, "sampling": Sampling(), "seed": 3, "tokens": False}
    async with inference(monkeypatch, reply) as (client, _):
        if text is None:
            with pytest.raises(PeerFault, match=r"cannot read the answer .*index"):
                await client.complete(PROMPT, **ask)
        else:
            assert (await client.complete(PROMPT, **ask)).completions[0].text == text


@pytest.mark.parametrize(
    ("tokens", "following"),
    [
        ([7, 9], {"logprobs": None}),
        ([7, 9], {"logprobs": {"top_logprobs": []}}),
        ([7, 9], {"logprobs": {"top_logprobs": [{"token_id:8": -1.0}]}}),
        ([7, 9], {"logprobs": {"top_logprobs": [{"token_id:9": None}]}}),
        ([7, 9], "text"),
        (None, {}),
    ],
)
async def test_log_probabilities_that_cannot_be_read_are_a_fault_of_the_server(
    tokens: list[int] | None, following: Any
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        choices = [following]
        if "logprobs" not in json.loads(request.content):  # the texts, as tokens
            choices = [{"prompt_token_ids": [7]}, {"prompt_token_ids": tokens}]
        numbered = [{"index": i, **c} if isinstance(c, dict) else c for i, c in enumerate(choices)]
        return httpx.Response(200, json={"choices": numbered})

    async with InferenceClient("http://inference:8000", transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(PeerFault, match=r"POST http://inference:8000/v1/completions: cannot read"):
            await client.ending_logprobs([1], [""], ["b"], lead="a", model="m")


async def test_a_prompt_that_cannot_be_read_is_a_fault_of_the_server() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json={"tokens": [1]}))
    async with InferenceClient("http://inference:8000", transport=transport) as client:
        with pytest.raises(PeerFault, match=r"POST http://inference:8000/detokenize: cannot read"):
            await client.opening_of([1])


@pytest.mark.parametrize(
    ("tail", "reasoning", "text"),
    [
        ("<|im_start|>assistant\n<think>\n", None, "<think>text 0"),
        ("[/INST][THINK]", None, "[THINK]text 0"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", None, "text 0"),
        ("<|im_start|>assistant\n", None, "text 0"),
        (None, None, "text 0"),
        ("<think>", "taken out", "<think>taken out</think>text 0"),
        ("<think>", "", "<think></think>text 0"),
    ],
)
async def test_answers_begin_with_the_mark_that_the_prompt_ends_with(
    monkeypatch: pytest.MonkeyPatch, tail: str | None, reasoning: str | None, text: str
) -> None:
    answer = choice(0)
    answer["message"]["reasoning"] = reasoning
    body = {"prompt_token_ids": [1, 2], "choices": [answer]}
    async with inference(monkeypatch, httpx.Response(200, json=body)) as (client, server):
        server.tail = tail
        ask = partial(client.complete, model="m", count=1, sampling=Sampling(), seed=0)
        assert [(await ask(PROMPT)).completions[0].text for _ in range(2)] == [text] * 2
        begun = replace(PROMPT, messages=(*PROMPT.messages, Message("assistant", "\\boxed{")))
        assert (await ask(begun)).completions[0].text == ("text 0" if reasoning is None else text)
        client.opening = "<think>"
        assert (await ask(PROMPT, tokens=False)).completions[0].text == (
            "<think>text 0" if reasoning is None else text
        )


async def test_fields_are_renamed_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}
    reply = httpx.Response(200, json={"choices": [answer]})
    fields = {"max_tokens": "max_completion_tokens", "seed": "", "temperature": ""}
    async with inference(monkeypatch, reply, fields=fields) as (client, server):
        await client.complete(PROMPT, model="m", count=1, sampling=Sampling(), seed=3, tokens=False)
    assert server.sent.keys() == {"model", "messages", "n", "top_p", "max_completion_tokens"}


async def test_a_server_that_knows_no_n_is_asked_for_the_others_at_once() -> None:
    asked: list[tuple[int, int]] = []
    both = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        sent = json.loads(request.content)
        asked.append((sent["n"], sent["seed"]))
        if sent["seed"] == 7:
            both.set()
        if sent["seed"] == 6:
            await asyncio.wait_for(both.wait(), 5)
        only = {"index": 0, "message": {"content": f"a{sent['seed']}"}, "finish_reason": "stop"}
        return httpx.Response(200, json={"choices": [only]})

    async with InferenceClient("http://inference:8000", transport=httpx.MockTransport(answer)) as client:
        generation = await client.complete(
            PROMPT, model="m", count=3, sampling=Sampling(), seed=5, tokens=False
        )
    assert asked == [(3, 5), (1, 6), (1, 7)]
    assert [(c.text, c.seed) for c in generation.completions] == [("a5", 5), ("a6", 6), ("a7", 7)]


async def test_only_vllm_tells_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, expected in [("vllm", True), ("openai", False)]:
        reply = httpx.Response(200, json={"data": [{"id": "m", "owned_by": owner}]})
        async with inference(monkeypatch, reply) as (client, server):
            assert [await client.tells_tokens(), await client.tells_tokens()] == [expected] * 2
            assert len(server.requests) == 1
            assert "Authorization" not in server.requests[0].headers
        monkeypatch.undo()
    async with inference(monkeypatch, httpx.Response(404, text="no such page")) as (client, _):
        assert not await client.tells_tokens(), "not every API lists its models"


@pytest.mark.parametrize("body", [{}, {"data": [{}]}, {"data": ["m"]}])
async def test_models_without_names_are_a_fault_of_the_server(
    monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    async with inference(monkeypatch, httpx.Response(200, json=body)) as (client, _):
        with pytest.raises(PeerFault, match="GET http://inference:8000/v1/models: cannot read the answer"):
            await client.served()


async def test_a_refused_key_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inference(
        monkeypatch, httpx.Response(401, text="no key sk-1 here"), access=Access("sk-1")
    ) as (client, _):
        with pytest.raises(SetupError, match=r"401 no key \*\*\* here"):
            await client.tells_tokens()


async def test_policy_in_service(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"version": 7, "sha256": "ab", "path": "/adapters/7", "base_model": "rook-tiny"}
    async with inference(monkeypatch, httpx.Response(200, json=body)) as (client, _):
        assert await client.adapter() == ADAPTER


async def test_no_policy_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inference(monkeypatch, httpx.Response(503)) as (client, _):
        assert await client.adapter() is None


async def test_reload_sends_the_whole_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inference(monkeypatch, httpx.Response(200, json={"load": 0.02})) as (client, server):
        assert await client.reload(ADAPTER, rollback=True) == {"load": 0.02}
    assert server.sent == {
        "version": 7,
        "path": "/adapters/7",
        "sha256": "ab",
        "base_model": "rook-tiny",
        "rollback": True,
    }


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidInput),
        (404, NotFound),
        (409, Conflict),
        (422, InvalidInput),
        (500, PeerFault),
        (502, PeerFault),
    ],
)
async def test_each_status_is_one_error(
    monkeypatch: pytest.MonkeyPatch, status: int, error: type[RookeryError]
) -> None:
    async with inference(monkeypatch, httpx.Response(status, text="version 7 is taken")) as (client, _):
        with pytest.raises(error, match=f"POST http://inference:8000/reload: {status} version 7 is taken"):
            await client.reload(ADAPTER)


async def test_silence_is_a_peer_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inference(monkeypatch, httpx.ConnectTimeout("too long")) as (client, _):
        with pytest.raises(PeerFault, match="GET http://inference:8000/policy: ConnectTimeout too long"):
            await client.adapter()
