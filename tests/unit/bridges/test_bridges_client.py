"""The client of `rookery_bridges`: what it sends, when it asks again, and what is a fault."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import httpx
import pytest

from rookery.trace import ScoreItem
from rookery_bridges import Answer, RewardClient, RewardFault, client, trl
from rookery_bridges.questions import ChangedAnswer, Question, legal_change, read_questions, same_move
from tests.conftest import ROOT

FEN = "8/4P1k1/8/8/8/8/1K6/8 w - - 0 1"
VERDICT = {
    "reward": -0.5, "outcome": "legal", "components": {"delta": -0.5}, "reward_version": "delta-1",
    "move": {"uci": "e7e8q", "san": "e8=Q"}, "best": {"uci": "e7e8q", "san": "e8=Q"}, "regret": 0.5,
}  # fmt: skip
FAULT = {"type": "urn:rookery:problem:engine-fault", "status": 503, "detail": "died"}
REFUSED = {"type": "urn:rookery:problem:invalid-input", "status": 422, "detail": "not a FEN"}


class Service:
    """Answers of the service in turn, and what was asked. The last answer is repeated."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []
        self.answers: list[httpx.Response | Exception] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sizes(self) -> list[int]:
        return [len(json.loads(request.content)["items"]) for request in self.requests]


def verdicts(*slots: object) -> httpx.Response:
    return httpx.Response(200, json={"verdicts": list(slots)})


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    service = Service()
    real = httpx.Client
    transport = httpx.MockTransport(service.handle)
    monkeypatch.setattr(client.httpx, "Client", lambda **options: real(**options, transport=transport))
    monkeypatch.setattr(client.time, "sleep", service.slept.append)
    trl._last_verdicts.cache_clear()
    return service


def test_an_answer_has_the_fields_of_an_item_but_for_effects_which_rollouts_measure() -> None:
    answer, item = ([(each.name, each.default) for each in fields(record)] for record in (Answer, ScoreItem))
    assert [*answer, ("effects", ())] == item


def test_one_request_with_token_and_scheme(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_REWARD_URL", "http://judge:1")
    monkeypatch.setenv("ROOKERY_TOKEN", "secret")
    service.answers = [verdicts(VERDICT, VERDICT)]
    asked = [Answer(FEN, ""), Answer(FEN, "\\boxed{e8}", scheme="best", truncated=True)]
    judged = RewardClient(scheme="delta").score(asked)
    assert [(v.reward, v.move, v.regret, v.legal, v.mates) for v in judged] == [
        (-0.5, "e7e8q", 0.5, True, False)
    ] * 2
    [request] = service.requests
    assert str(request.url) == "http://judge:1/v1/score/batch"
    assert request.headers["Authorization"] == "Bearer secret"
    assert json.loads(request.content)["items"] == [
        {"fen": FEN, "response": "", "scheme": "delta"},
        {"fen": FEN, "response": "\\boxed{e8}", "scheme": "best", "truncated": True},
    ]
    assert "secret" not in repr(RewardClient(token="secret"))

    monkeypatch.setenv("ROOKERY_OPENING", "<think>")
    service.answers = [verdicts(VERDICT, VERDICT)]
    RewardClient().score([Answer(FEN, "\\boxed{e8}"), Answer(FEN, "M: e8", task="P")])
    sent = [item["response"] for item in json.loads(service.requests[-1].content)["items"]]
    assert sent == ["<think>\\boxed{e8}", "M: e8"]


@pytest.mark.parametrize(
    "first",
    [
        httpx.ConnectError("refused", request=httpx.Request("POST", "http://x")),
        httpx.Response(503, headers={"Retry-After": "3"}, json=FAULT),
        verdicts(VERDICT, FAULT),
    ],
)
def test_it_asks_again_for_the_whole_batch(service: Service, first: httpx.Response | Exception) -> None:
    service.answers = [first, verdicts(VERDICT, VERDICT)]
    assert len(RewardClient().score([Answer(FEN, "a"), Answer(FEN, "b")])) == 2
    assert service.sizes() == [2, 2]
    asked_to_wait = isinstance(first, httpx.Response) and "Retry-After" in first.headers
    assert service.slept == [3.0 if asked_to_wait else client.PAUSES_S[0]]


@pytest.mark.parametrize(
    ("answer", "attempts", "quoted"),
    [
        (verdicts(FAULT), len(client.PAUSES_S) + 1, "503 died"),
        (verdicts(REFUSED), 1, "422 not a FEN"),
        (httpx.Response(422, text="no"), 1, "422 no"),
        (httpx.Response(401, text="no token"), 1, "401 no token"),
        (httpx.Response(200, text="<html>"), 1, "cannot read '<html>'"),
        (verdicts(), 1, "0 verdicts of 1 answers"),
        (verdicts({**VERDICT, "reward": None}), 1, "cannot read"),
        (httpx.Response(200, text=json.dumps({"verdicts": [{**VERDICT, "reward": float("nan")}]})), 1, "nan"),
    ],
)
def test_a_fault_is_an_exception(
    service: Service, answer: httpx.Response, attempts: int, quoted: str
) -> None:
    service.answers = [answer]
    with pytest.raises(RewardFault, match=r".") as fault:
        trl.reward(["x"], fen=[FEN])
    assert quoted in str(fault.value)
    assert len(service.requests) == attempts
    again = pickle.loads(pickle.dumps(fault.value))
    assert (str(again), again.retry_after_s) == (str(fault.value), fault.value.retry_after_s)


STATE = {
    "episode": {"episode": "game", "fen": FEN, "turns": []}, "prompt": [{"role": "user", "content": "?"}],
    "tools": [], "fen": FEN, "observation": "", "reward": 0.0, "done": False, "of a later version": 1,
}  # fmt: skip


def test_an_episode_goes_back_with_the_next_response(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOKERY_OPENING", "<think>")
    busy = httpx.Response(503, headers={"Retry-After": "3"}, json=FAULT)
    service.answers = [
        busy,
        httpx.Response(200, json=STATE),
        httpx.Response(200, json=STATE | {"reward": 0.5}),
    ]
    judge = RewardClient(scheme="best")
    begun = judge.play({"episode": "game", "fen": FEN})
    after = judge.play(begun.episode, response="\\boxed{e8}", truncated=True)
    assert (begun.prompt, after.reward, service.slept) == (STATE["prompt"], 0.5, [3.0])
    assert [json.loads(request.content) for request in service.requests[1:]] == [
        {"scheme": "best", "episode": "game", "fen": FEN},
        {"scheme": "best", **begun.episode, "response": "<think>\\boxed{e8}", "truncated": True},
    ]
    for wrong in (STATE | {"reward": None}, {"done": True}):
        service.answers = [httpx.Response(200, json=wrong)]
        with pytest.raises(RewardFault, match="cannot read"):
            judge.play(begun.episode, cut=True)


def test_groups_stay_together_in_large_batches() -> None:
    fens = [str(number) for number in range(300) for _ in range(8)]
    batches = list(client._batches(Answer(fen, "") for fen in fens))
    assert [answer.fen for batch in batches for answer in batch] == fens
    assert [len(batch) for batch in batches] == [1024, 1024, 352]
    odd = [str(number) for number in range(4) for _ in range(300)]
    assert [len(batch) for batch in client._batches(Answer(fen, "") for fen in odd)] == [900, 300]
    assert [len(b) for b in client._batches(Answer(FEN, "") for _ in range(1500))] == [1024, 476]


def test_long_answers_are_spread_over_requests() -> None:
    long = [Answer("a", "x" * 20_000), Answer("b", "é" * (client.MAX_BYTES // 8))] * 300
    batches = list(client._batches(long))
    assert [answer for batch in batches for answer in batch] == long
    sizes = [sum(len(answer.response.encode()) for answer in batch) for batch in batches]
    assert max(sizes) <= client.MAX_BYTES
    assert len(batches) < 200


def test_a_token_with_odd_characters_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_TOKEN", "geheimn\u00edm-0123456789")
    with pytest.raises(RewardFault, match=r"the token .* has characters that no header") as fault:
        RewardClient("http://localhost:1").score([Answer("fen", "text")])
    assert "geheim" not in str(fault.value)


def test_trl_gets_floats_from_texts_and_conversations(service: Service) -> None:
    service.answers = [verdicts(*[VERDICT] * 5)]
    logged: dict[str, float] = {}
    completions = [
        "plain",
        [{"role": "assistant", "content": "chat"}],
        [{"role": "assistant", "reasoning_content": "why", "content": "apart"}],
        [{"role": "assistant", "reasoning_content": "", "thinking": None, "content": "at once"}],
        [
            {"role": "assistant", "content": [{"type": "text", "text": "parts"}]},
            {"role": "tool", "content": "-"},
        ],
    ]
    rewards = trl.reward(
        completions,
        fen=[FEN] * 5,
        task=["P", "", None, None, ""],
        prompts=range(5),
        log_metric=logged.__setitem__,
    )
    assert rewards == [-0.5] * 5
    assert logged == {"legal_rate": 1.0}
    items = json.loads(service.requests[0].content)["items"]
    assert [item["response"] for item in items] == [
        "plain", "chat", "<think>why</think>apart", "<think></think>at once", "parts",
    ]  # fmt: skip
    assert [item.get("task") for item in items] == ["P", None, None, None, None]


def test_an_answer_begins_with_the_opening_once_and_a_solution_is_judged(service: Service) -> None:
    service.answers = [verdicts(*[VERDICT] * 4)]
    solution = Question("q", [], FEN, solution="\\boxed{e4}").solved()
    answers = [Answer(FEN, "a"), Answer(FEN, "<think>a"), Answer(FEN, "a", task="game"), solution]
    RewardClient(opening="<think>").score(answers)
    items = json.loads(service.requests[0].content)["items"]
    sent = ["<think>a", "<think>a", "a", "<think></think>\\boxed{e4}"]
    assert [item["response"] for item in items] == sent


def test_components_are_functions_that_share_a_request_and_add_up(service: Service) -> None:
    legal = {**VERDICT, "reward": -0.4, "components": {"delta": -0.5, "candidates(3)": 0.1}}
    illegal = {**VERDICT, "reward": -1.3, "outcome": "illegal", "components": {"penalty": -1.3}, "move": None}
    service.answers = [verdicts(legal, illegal)]
    functions: list[Callable[..., list[float]]] = pickle.loads(
        pickle.dumps(trl.components("delta + 0.1*candidates"))
    )
    assert [function.__name__ for function in functions] == ["delta", "candidates"]
    assert [function(["a", "b"], fen=[FEN, FEN]) for function in functions] == [[-0.5, -1.3], [0.1, 0.0]]
    assert len(service.requests) == 1
    assert json.loads(service.requests[0].content)["items"][0]["scheme"] == "delta + 0.1*candidates"
    assert pickle.loads(pickle.dumps(trl.reward)) is trl.reward


@pytest.mark.parametrize("label", [FEN, json.dumps({"fen": FEN}), {"fen": FEN}])
def test_a_label_names_a_position(label: object) -> None:
    assert Answer.to(label, "x") == Answer(FEN, "x")


@pytest.mark.parametrize("label", ["{", '{"colour": 1}', "{}", 7])
def test_a_label_that_names_none_is_a_fault(label: object) -> None:
    with pytest.raises(RewardFault, match="names no position"):
        Answer.to(label, "x")


def test_an_address_that_is_none_is_a_fault() -> None:
    for url in ("localhost:8080", "http://host:port"):
        with pytest.raises(RewardFault, match=repr(url)):
            RewardClient(url).score([Answer(FEN, "")])


def test_a_line_that_is_no_question_is_named(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    good = {"id": "a", "prompt": [{"role": "user", "content": "?"}], "fen": FEN}
    path.write_text(json.dumps(good) + "\n{}\n")
    questions = read_questions(path)
    assert next(questions).answer("x") == Answer(FEN, "x")
    with pytest.raises(ValueError, match=r"q.jsonl:2: not a question: '\{\}"):
        next(questions)


def test_moves_of_changed_questions_are_compared_with_those_before() -> None:
    answers = [
        ChangedAnswer("p", "", "move", "e2e4"),
        ChangedAnswer("p colours", "p", "ranks", "e7e5"),
        ChangedAnswer("p sides", "p", "files", "d2d4"),
        ChangedAnswer("p again", "p", "move", "d2d4"),
        ChangedAnswer("p shuffled", "p", "", "a2a3"),
        ChangedAnswer("p claim", "p", "move", None),
        ChangedAnswer("q", "", "move", None),
        ChangedAnswer("q promoting", "q", "ranks", "a2a1q"),
        ChangedAnswer("q again", "q", "move", None),
        ChangedAnswer("of no other", "r", "move", "e2e4"),
    ]
    assert same_move(answers) == 2 / 5  # neither of q again is legal
    assert legal_change(answers[:6]) == -1 / 5
    assert legal_change(answers) == same_move(answers[:1]) == legal_change([]) == 0.0
    assert (
        same_move([ChangedAnswer("p", "", "move", "a7a8q"), ChangedAnswer("s", "p", "ranks", "a2a1q")]) == 1.0
    )


def test_it_needs_nothing_of_rookery_but_httpx() -> None:
    """In a process in which the rest of the repository cannot be imported."""
    program = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] in ('rookery', 'services', 'commentary', 'chess', 'torch'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "import rookery_bridges.trl, rookery_bridges.verl, rookery_bridges.questions\n"
    )
    environment = {"PYTHONPATH": str(ROOT / "bridges"), "PATH": ""}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd="/")
