"""The routes for slime and OpenRLHF: what these trainers send, and what they read of the answer."""

import json

import httpx
import pytest

pytestmark = pytest.mark.stockfish

FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
PROMPT = "<|user|>Mate, for example \\boxed{Qxf7#}.<|assistant|>"


def openrlhf_body(*responses: str, label: str = FEN) -> dict[str, list[str]]:
    """With padding on the left and the end of the sequence on the right, as `batch_decode` gives them."""
    return {
        "query": [f"<|pad|><|pad|>{PROMPT}{response}<|end|>" for response in responses],
        "prompts": [PROMPT] * len(responses),
        "labels": [label] * len(responses),
    }


async def test_slime_gets_a_number(http: httpx.AsyncClient) -> None:
    sample = {"prompt": [{"role": "user", "content": "?"}], "response": "\\boxed{Qxf7#}", "label": FEN}
    answered = await http.post("/v1/slime", json=sample)
    assert (answered.status_code, answered.json()) == (200, 0.0)
    worse = {**sample, "response": "\\boxed{Ke5}"}
    assert (await http.post("/v1/slime", json=worse)).json() == -1.2
    for label in ({"fen": FEN, "scheme": "best"}, json.dumps({"fen": FEN, "scheme": "best"})):
        assert (await http.post("/v1/slime", json={**sample, "label": label})).json() == 1.0


@pytest.mark.parametrize(
    ("label", "quoted"),
    [
        ("no position", "'no position'"),
        ('{"fen": ', "neither a FEN nor JSON"),
        ('{"fen": "8/8/8/8/8/8/8/8 w - - 0 1", "colour": 1}', ": colour"),
        ("{}", ": fen"),
        ("[" * 100_000, "a FEN cannot have 100000 characters"),
        ('{"fen": ' + "[" * 100_000, "neither a FEN nor JSON"),
    ],
)
async def test_a_label_without_a_position_is_refused(
    http: httpx.AsyncClient, label: str, quoted: str
) -> None:
    for path, body in (
        ("/v1/slime", {"prompt": "", "response": "\\boxed{e4}", "label": label}),
        ("/v1/openrlhf", openrlhf_body("\\boxed{e4}", label=label)),
    ):
        answered = await http.post(path, json=body)
        assert answered.status_code == 422
        assert quoted in answered.json()["detail"]


async def test_openrlhf_gets_rewards_scores_and_logs(http: httpx.AsyncClient) -> None:
    answered = await http.post(
        "/v1/openrlhf", json=openrlhf_body("\\boxed{Qxf7#}", "\\boxed{a3}", "\\boxed{Ke5}", "what?")
    )
    body = answered.json()
    assert answered.status_code == 200
    assert body.keys() == {"rewards", "scores", "extra_logs"}
    best, quiet, illegal, none = body["rewards"]
    assert (best, illegal, none) == (0.0, -1.2, -1.5)
    assert -1.0 <= quiet < 0.0
    assert body["scores"] == [1.0, 1.0 + quiet, 0.0, 0.0]
    assert body["extra_logs"] == {"legal": [1.0, 1.0, 0.0, 0.0]}


async def test_the_box_of_a_prompt_is_no_answer(http: httpx.AsyncClient) -> None:
    body = openrlhf_body("I do not know")
    assert (await http.post("/v1/openrlhf", json=body)).json()["rewards"] == [-1.5]
    for wrong in (
        {"prompts": ["another prompt"]},
        {"prompts": [""]},
        {"prompts": []},
        {"labels": [FEN, FEN]},
    ):
        answered = await http.post("/v1/openrlhf", json={**body, **wrong})
        assert answered.status_code == 422, wrong


async def test_a_graded_answer_has_a_score_too(http: httpx.AsyncClient) -> None:
    label = json.dumps({"fen": FEN, "task": "A", "move": "f3f7"})
    answered = await http.post("/v1/openrlhf", json=openrlhf_body("no board", label=label))
    assert answered.json()["scores"] == [0.0]
    assert answered.json()["rewards"] == [pytest.approx(-0.3)]


@pytest.mark.parametrize("end", ["", "<|im_end|>", "</s><pad><pad>", "<|end|>\n"])
async def test_marks_at_the_end_of_an_answer_are_no_part_of_it(http: httpx.AsyncClient, end: str) -> None:
    for label, response, reward in (
        ({"fen": FEN, "scheme": "delta+0.5*format"}, "<think>f7</think> \\boxed{Qxf7#}", 0.5),
        ({"fen": FEN, "task": "game"}, "Qxf7#", 0.0),
    ):
        answered = await http.post("/v1/slime", json={"response": response + end, "label": label})
        assert answered.json() == reward
        body = {"query": [f"?{response}{end}"], "prompts": ["?"], "labels": [json.dumps(label)]}
        assert (await http.post("/v1/openrlhf", json=body)).json()["rewards"] == [reward]


async def test_an_answer_begins_with_the_mark_that_ends_its_prompt(http: httpx.AsyncClient) -> None:
    prompt = "Your move?<|assistant|><think>\n"
    sample = {"prompt": prompt, "response": "\\boxed{Qxf7#} or", "label": FEN}
    assert (await http.post("/v1/slime", json=sample)).json() == -1.5
    body = {"query": [f"{prompt}\\boxed{{Qxf7#}} or"], "prompts": [prompt], "labels": [FEN]}
    assert (await http.post("/v1/openrlhf", json=body)).json()["rewards"] == [-1.5]
