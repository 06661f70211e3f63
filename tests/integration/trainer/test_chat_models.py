"""What the trainer makes of the tokenizers and chat templates of real models."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rookery.alternatives import Alternatives
from rookery.config.finetune import SftSettings
from rookery.config.trainer import TrainerSettings
from rookery.hub import begins_with_bos, chat_template
from rookery.prompt import render
from rookery.tool_calls import SCHEMAS, ToolCall, can_call, json_call
from rookery.trace import Claim, Completion, Outcome, ProcessReward, Sentence, Trace, Turn, Verdict
from services.trainer.batches.process_rewards import token_advantages, token_spans, tokenizer_of
from services.trainer.examples.chats import Chat, tokenize
from services.trainer.examples.rows import collate_examples
from services.trainer.finetune import sft
from services.trainer.finetune.model import load_chat_tokenizer
from tests.builders import position
from tests.chat_models import (
    CHAT_MODELS,
    MISTRAL_TEMPLATE,
    R1_TEMPLATE,
    mistral_file,
    write_tokenizer,
)
from tests.conftest import TRAINERS
from tests.unit.rookery.records import GROUP

pytestmark = pytest.mark.torch

PROMPT = [
    {"role": message.role, "content": message.content}
    for message in render(position(), style="fen-legal-san").messages
]
ANSWER = "<think>Nf3 attacks e5. The king on e1 is safe. Nf3 O-O e4</think>Nf3 it is. \\boxed{Nf3}"


def chat(*alternatives: Alternatives, answer: str = ANSWER) -> Chat:
    return Chat([*PROMPT, {"role": "assistant", "content": answer}], alternatives)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tokenizer. Skips the test if it cannot be had."""

    @cache
    def folder(name: str) -> Path:
        written = write_tokenizer(name, tmp_path_factory.mktemp("tokenizer") / name)
        architecture = CHAT_MODELS[name].architecture.lower()
        (written / "config.json").write_text(json.dumps({"model_type": architecture}))
        return written

    return folder


@pytest.fixture(scope="module", params=CHAT_MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(folder_of: Callable[[str], Path], name: str) -> Path:
    return folder_of(name)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return load_chat_tokenizer(folder)


def rendered(tokenizer: Any, messages: list[dict[str, str]], **keywords: Any) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, **keywords))


def test_the_answer_and_its_end_carry_loss_and_nothing_else(name: str, tokenizer: Any) -> None:
    [example] = tokenize([chat()], tokenizer)
    learned = collate_examples([[example]])
    assert learned.targets_N.tolist() == list(example.answers[0])
    places = learned.predictor_N.tolist()
    assert places == list(range(len(example.prompt_ids) - 1, example.length - 1))
    assert tokenizer.decode(example.prompt_ids) == rendered(tokenizer, PROMPT, add_generation_prompt=True)
    assert all(message["content"] in tokenizer.decode(example.prompt_ids) for message in PROMPT)
    end = tokenizer.convert_tokens_to_ids(CHAT_MODELS[name].end)
    assert [place for place, token in enumerate(example.answers[0]) if token == end] == [
        len(example.answers[0]) - 1
    ]
    if tokenizer.bos_token_id not in (None, end) and name != "smollm2":  # its BOS begins every message
        assert list(example.prompt_ids).count(tokenizer.bos_token_id) == 1
    assert tokenizer.decode(example.answers[0]).rstrip().endswith(ANSWER[-20:] + CHAT_MODELS[name].end)


def test_answers_that_the_template_writes_too_end_where_they_end(name: str, tokenizer: Any) -> None:
    """Such as a letter of the end token, or the name of the role in the prompt that follows."""
    for word in ("e", "n", "assistant", "model"):
        answer = f"<think>\nx\n</think>\n\n{word}" if name == "qwen3-thinking" else word
        [example] = tokenize([chat(answer=answer)], tokenizer)
        assert tokenizer.decode(example.answers[0]).endswith(word + CHAT_MODELS[name].end)
        whole = rendered(tokenizer, chat(answer=answer).messages)
        assert whole.startswith(tokenizer.decode([*example.prompt_ids, *example.answers[0]]))


def test_prompt_and_answer_have_the_tokens_of_the_whole(name: str, tokenizer: Any) -> None:
    for answer in (ANSWER, "\\boxed{e4}", "<think>\ne4\n</think>\n\n\\boxed{e4}"):
        if name == "qwen3-thinking" and "<think>" not in answer:
            continue  # two line breaks after <think> are one token, of which the prompt has the first
        [example] = tokenize([chat(answer=answer)], tokenizer)
        whole = tokenizer(rendered(tokenizer, chat(answer=answer).messages), add_special_tokens=False)
        assert whole["input_ids"][: example.length] == [*example.prompt_ids, *example.answers[0]]


SPANS = {
    "a move": ("Nf3", ("Nf3", "O-O", "exd5"), 0),
    "moves of which one begins another": ("O-O", ("O-O", "O-O-O", "e8=Q+"), 0),
    "a sentence": ("The king on e1 is safe.", ("The king on e1 is safe.", "White has two bishops."), 0),
    "the boxed move": ("Nf3", ("Nf3", "Nc3", "O-O-O"), ANSWER.index("{")),
}


@pytest.mark.parametrize("span", SPANS)
def test_soft_targets_are_those_of_the_texts_tokens(tokenizer: Any, span: str) -> None:
    """Every other text begins, where its tokens leave those of the answer, with a target of its weight."""
    text, texts, after = SPANS[span]
    start, weights = ANSWER.index(text, after), [0.5, 0.3, 0.2][: len(texts)]
    weights[0] += 1 - sum(weights)
    [example] = tokenize([chat(Alternatives(start, start + len(text), texts, tuple(weights)))], tokenizer)
    [soft] = example.soft_targets
    assert soft is not None
    targets = dict[int, dict[int, float]]()
    for index, token, weight in zip(soft.indices, soft.tokens, soft.weights, strict=True):
        targets.setdefault(index, {})[token] = weight
    ids, first = list(example.answers[0]), set[int]()
    for other, weight in list(zip(texts, weights, strict=True))[1:]:
        answer = ANSWER[:start] + other + ANSWER[start + len(text) :]
        others = tokenize([chat(answer=answer)], tokenizer)[0].answers[0]
        place = next(i for i, (one, two) in enumerate(zip(ids, others, strict=False)) if one != two)
        assert targets[place].get(others[place], 0) >= 0.99 * weight, tokenizer.decode(others[place])
        first.add(place)
    spread = {index for index, distribution in targets.items() if len(distribution) > 1}
    assert first <= spread
    rest = tokenizer.decode(ids[: min(spread)]), tokenizer.decode(ids[max(spread) + 1 :])
    assert text not in "".join(rest).replace(ANSWER[:start], "") or ANSWER.count(text) > 1
    assert all(abs(sum(distribution.values()) - 1) < 1e-6 for distribution in targets.values())
    assert list(targets) == list(range(len(ids)))


def test_the_reward_of_a_sentence_and_of_a_move_reach_their_tokens_alone(
    name: str, folder: Path, tokenizer: Any
) -> None:
    text, inner = "The king on e1 is safe.", tokenizer_of(str(folder))
    start, move = ANSWER.index(text), ANSWER.index("O-O")

    def trace(number: int, true: bool) -> Trace:
        [example] = tokenize([chat()], tokenizer)
        said = tokenizer.decode(example.answers[0][:-1])
        said = f"<think>{said}" if name == "qwen3-thinking" else said.removeprefix(" ")
        completion = Completion(said, tuple(example.answers[0]), (-1.0,) * len(example.answers[0]), "stop", 0)
        shift = said.index(text) - start
        sentence = Sentence(start + shift, start + shift + len(text), True, (Claim("king", 0, 1, true),))
        rewards = (ProcessReward(move + shift, move + shift + 3, 0.5 if true else -0.5),)
        verdict = Verdict(0.0, Outcome.LEGAL, "1", process_rewards=rewards, sentences=(sentence,))
        return Trace(f"t{number}", (Turn(completion, verdict),))

    traces = (trace(0, True), trace(1, False))
    settings = TrainerSettings(model=folder, run_dir=folder, process_rewards=True, normalise=False)
    values = token_advantages([replace(GROUP, traces=traces)], [[0.0, 0.0]], settings=settings)
    spans = token_spans(inner, traces[0].completion)
    said = traces[0].completion.text
    assert "".join(said[first:last] for first, last in spans) == said.removeprefix(
        "<think>" if name == "qwen3-thinking" else ""
    )
    for sign, trace_ in ((1, traces[0]), (-1, traces[1])):
        rewarded = {round(value, 6): "" for value in values[trace_.id]}
        for value, (first, last) in zip(values[trace_.id], spans, strict=True):
            rewarded[round(value, 6)] += said[first:last]
        assert text in rewarded[sign * 1.0] and len(rewarded[sign * 1.0]) <= len(text) + 3
        assert "O-O" in rewarded[sign * 0.5] and len(rewarded[sign * 0.5]) <= 6


def test_a_stripping_template_does_not_strip_what_is_learned(folder_of: Callable[[str], Path]) -> None:
    tokenizer = load_chat_tokenizer(folder_of("qwen3"))
    tokenizer.chat_template = R1_TEMPLATE
    for answer in (ANSWER, ANSWER.replace("<think>", "<think>\n") + "\n"):
        span = Alternatives(answer.index("O-O"), answer.index("O-O") + 3, ("O-O", "e4"), (0.5, 0.5))
        [example] = tokenize([chat(span, answer=answer)], tokenizer)
        assert tokenizer.decode(example.prompt_ids).endswith("<|im_start|>assistant\n<think>\n")
        learned = answer.removeprefix("<think>").removeprefix("\n") + "<|im_end|>"
        assert tokenizer.decode(example.answers[0]) == learned
        assert example.soft_targets[0] is not None


def test_mistrals_template_is_mistrals_library(folder_of: Callable[[str], Path]) -> None:
    """A system message, which its template refuses, goes where that library puts it."""
    folder = folder_of("mistral")
    assert (folder / "chat_template.jinja").read_text() == MISTRAL_TEMPLATE
    from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, UserMessage
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.protocol.instruct.validator import ValidationMode
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    system, user = (message["content"] for message in PROMPT)
    request: Any = ChatCompletionRequest(
        messages=[SystemMessage(content=system), UserMessage(content=user), AssistantMessage(content=ANSWER)]
    )
    library = MistralTokenizer.from_file(str(mistral_file()), mode=ValidationMode.finetuning)
    theirs = library.encode_chat_completion(request).tokens
    [example] = tokenize([chat()], load_chat_tokenizer(folder))
    assert [*example.prompt_ids, *example.answers[0]] == theirs


def test_a_call_of_a_tool_goes_on_in_its_tokens(name: str, folder: Path, tokenizer: Any) -> None:
    """Where the template has calls in JSON. With thinking, which such a template keeps."""
    assert can_call(chat_template(folder)) == name.startswith("qwen3")
    if not name.startswith("qwen3"):
        return
    opened, call = name == "qwen3-thinking", '{"name": "legal_moves", "arguments": {}}'
    for thought in ("<think>\nHm.\n</think>\n\n", *([] if opened else [""])):
        text = f"{thought}<tool_call>\n{call}\n</tool_call>"
        assert json_call(text) == ToolCall("legal_moves", [])
        called = [{"role": "assistant", "content": text}, {"role": "tool", "content": "Legal moves: e4"}]
        before, after = (
            tokenizer.apply_chat_template(
                messages, tools=list(SCHEMAS), add_generation_prompt=True, return_dict=False
            )
            for messages in (PROMPT, [*PROMPT, *called, *called])
        )
        sampled = tokenizer(text.removeprefix("<think>\n" if opened else "") + "<|im_end|>")["input_ids"]
        assert after[: len(before) + len(sampled)] == [*before, *sampled]
        assert all(tool["function"]["description"] in tokenizer.decode(before) for tool in SCHEMAS)


@pytest.mark.parametrize(("version", "able"), [("v1", False), ("v3", True), ("v7", True), ("v13", False)])
def test_mistrals_own_templates_have_calls_in_json_up_to_a_version(version: str, able: bool) -> None:
    """Later ones write the name before the arguments."""
    pytest.importorskip("mistral_common")
    from mistral_common.integrations.chat_templates.template_generator import (
        TemplateConfig,
        build_chat_template,
    )
    from mistral_common.tokens.tokenizers.base import TokenizerVersion

    config = TemplateConfig(version=TokenizerVersion(version), spm=False)
    assert can_call(build_chat_template(config)) == able


@pytest.mark.trainers
@pytest.mark.parametrize(
    ("name", "able"),
    [("llama3_1", True), ("llama3_2", True), ("qwen2_5", True), ("qwen3_6", False), ("gptoss", False)],
)
def test_templates_of_other_models(name: str, able: bool) -> None:
    """As TRL ships them."""
    [file] = TRAINERS.glob(f"trl/chat_templates/{name}.jinja")
    assert can_call(file.read_text()) == able


def test_a_plain_text_begins_as_the_tokenizer_begins_every_text(
    name: str, folder: Path, tokenizer: Any
) -> None:
    """So does the server begin a prompt of its route for plain texts, /v1/completions."""
    texts = [{"role": "user", "content": "Moves:\n"}, {"role": "assistant", "content": "e4\n"}]
    [example] = tokenize([Chat(texts, plain=True)], tokenizer)
    assert list(example.prompt_ids) == tokenizer("Moves:\n")["input_ids"]
    begins = example.prompt_ids[0] == tokenizer.bos_token_id
    assert begins == begins_with_bos(folder) == (name in ("llama3.1", "gemma3", "mistral"))


def test_a_model_of_sft_stops_where_its_answers_end(tmp_path: Path, small_model: Path) -> None:
    """The tokenizer and the config may name another end token than the template, as for the first Llama 3."""
    model = shutil.copytree(small_model, tmp_path / "model")
    (model / "generation_config.json").unlink()
    tokenizer = load_chat_tokenizer(model)
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    for file, changed in (
        ("config.json", {"eos_token_id": pad}),
        ("tokenizer_config.json", {"eos_token": tokenizer.pad_token}),
    ):
        (model / file).write_text(json.dumps(json.loads((model / file).read_text()) | changed))
    answered = {"messages": [{"role": "user", "content": "e2"}, {"role": "assistant", "content": "e4"}]}
    (tmp_path / "x.jsonl").write_text(json.dumps(answered) + "\n")
    settings = SftSettings(
        model=str(model), data=str(tmp_path / "x.jsonl"), out=tmp_path / "out", steps=1, batch_size=1,
        device="cpu", style="mover-squares",
    )  # fmt: skip
    trained = sft.run(settings)
    assert json.loads((trained / "generation_config.json").read_text())["eos_token_id"] == [pad, end]
