"""Chats from files, and which of their tokens are the answer's, whatever the chat template."""

import json
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rookery.alternatives import Alternatives
from rookery.errors import InvalidInput, SetupError
from rookery.prompt import render
from rookery.trace import Phase, Position
from services.trainer.examples import chat_files
from services.trainer.examples.chat_files import ChatExamples, open_chats
from services.trainer.examples.chats import PLAIN_TEMPLATE, Chat, Messages, tokenize
from services.trainer.examples.rows import shuffled_batches
from services.trainer.finetune.model import load_chat_tokenizer
from services.trainer.tiny import build_tiny

QUESTION = {"role": "user", "content": "the board"}
ANSWER = {"role": "assistant", "content": "e4"}

TEMPLATES = {
    "plain": PLAIN_TEMPLATE,
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama": "{{ bos_token }}{% for m in messages %}[{{ m.role }}]\n\n{{ m.content | trim }}<|eot|>"
    "{% endfor %}{% if add_generation_prompt %}[assistant]\n\n{% endif %}",
    "mistral": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %} [INST] {{ m.content }} "
    "[/INST]{% elif m.role == 'assistant' %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
    "thinker": "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}<think>"
    "{{ m.content.split('|')[0] }}</think>{{ m.content.split('|')[-1] }}{% else %}"
    "{{ m.content.split('|')[-1] }}{% endif %}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
}


def _bytes_tokenizer(template: str, *merges: tuple[str, str]) -> PreTrainedTokenizerFast:
    """One token a byte, but for the merges: the decoded ids are the rendered text."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    inner = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(alphabet)}, list(merges)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = template
    return tokenizer


TOKENIZERS = {name: _bytes_tokenizer(template) for name, template in TEMPLATES.items()}

words = st.text(st.characters(codec="ascii", exclude_characters="\x00|<>\\"), min_size=1, max_size=20)
turns = st.lists(st.tuples(words, words), max_size=2)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_prompt_and_its_completion_have_no_template(name: str, tmp_path: Path) -> None:
    path, text = tmp_path / "games.jsonl", {"prompt": "Moves:\n", "completion": "e4\ne5\n"}
    path.write_text(json.dumps(text) + "\n")
    chats = open_chats(path)
    [example] = ChatExamples(chats, TOKENIZERS[name], max_length=99).examples([0])
    assert TOKENIZERS[name].decode(example.prompt_ids) == "Moves:\n"
    assert TOKENIZERS[name].decode(example.answers[0]) == "e4\ne5\n" + TOKENIZERS[name].eos_token
    path.write_text(json.dumps(text | {"prompt": [QUESTION]}) + "\n")
    with pytest.raises(InvalidInput, match=f"{path}:1: prompt is not text"):
        open_chats(path)[0]


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=3 * settings.default.max_examples // 20, deadline=None)
@given(earlier=turns, question=words, answer=words)
def test_only_the_last_answer_carries_loss(
    name: str, earlier: list[tuple[str, str]], question: str, answer: str
) -> None:
    tokenizer = TOKENIZERS[name]
    chat: Messages = [
        {"role": role, "content": text}
        for pair in earlier
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    chat += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    [example] = tokenize([Chat(chat)], tokenizer)
    prompt, learned = tokenizer.decode(example.prompt_ids), tokenizer.decode(example.answers[0])
    # What a server would be given is context to the last token; what it would have to say is the rest.
    assert prompt == tokenizer.apply_chat_template(chat[:-1], tokenize=False, add_generation_prompt=True)
    assert prompt + learned == tokenizer.apply_chat_template(chat, tokenize=False)
    assert answer.strip() in learned


def test_nothing_after_the_end_of_an_answer_carries_loss() -> None:
    """SmolLM2's and Qwen's template writes a line break after the end token."""
    tokenizer = _bytes_tokenizer(TEMPLATES["chatml"])
    tokenizer.add_special_tokens({"eos_token": "<|im_end|>"})
    answer = ANSWER | {"content": "e4\n"}
    for keywords, learned in (({}, "e4\n<|im_end|>"), ({"after_end": True}, "e4\n<|im_end|>\n")):
        [example] = tokenize([Chat([QUESTION, answer])], tokenizer, **keywords)
        assert tokenizer.decode(example.answers[0]) == learned


def test_a_template_that_rewrites_the_prompt_is_refused() -> None:
    rewriting = _bytes_tokenizer("{{ messages | length }}{{ messages[-1].content }}")
    with pytest.raises(InvalidInput, match="not a prefix"):
        tokenize([Chat([QUESTION, ANSWER])], rewriting)


def test_a_conversation_without_a_prompt_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nothing comes before the answer 'e4'"):
        tokenize([Chat([ANSWER])], TOKENIZERS["plain"])


def test_a_tokenizer_without_a_template_gets_the_plain_one(tmp_path: Path) -> None:
    bare = _bytes_tokenizer("")
    bare.chat_template = None
    bare.save_pretrained(tmp_path)
    [example] = tokenize([Chat([QUESTION, ANSWER])], load_chat_tokenizer(tmp_path))
    assert bare.decode(example.prompt_ids) == "the board"
    assert bare.decode(example.answers[0]) == "e4</s>"


def test_answers_that_nothing_would_end_are_not_learned(tmp_path: Path) -> None:
    bare = _bytes_tokenizer("")
    bare.chat_template = bare.eos_token = None
    bare.save_pretrained(tmp_path)
    with pytest.raises(SetupError, match="has neither a chat template nor an eos_token"):
        load_chat_tokenizer(tmp_path)


def test_rook_tinys_answer_ends_with_its_end(tiny_model: Path) -> None:
    tokenizer = load_chat_tokenizer(tiny_model)
    [example] = tokenize([Chat([QUESTION, {"role": "assistant", "content": "\\boxed{e2e4}"}])], tokenizer)
    assert tokenizer.decode(example.answers[0]) == "\\boxed{e2e4}<|end|>"
    assert tokenizer.decode(example.prompt_ids).endswith("<|assistant|>")


def _write(path: Path, *answers: str) -> Path:
    chats = [{"messages": [QUESTION, {"role": "assistant", "content": answer}]} for answer in answers]
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    return path


def test_what_is_too_long_is_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chats = open_chats(_write(tmp_path / "x.jsonl", "e4", "much too long", "d4", *(["e5"] * 7)))
    tokenizer = TOKENIZERS["plain"]
    length = tokenize([chats[0]], tokenizer)[0].length
    source = ChatExamples(chats, tokenizer, max_length=length, share_prompts=False)
    said = [tokenizer.decode(example.answers[0]) for example in source.examples(range(3))]
    assert [answer.removesuffix("</s>") for answer in said] == ["e4", "d4", "e5"]
    assert source.survey.left_out == 1
    assert f"10 examples in {tmp_path}/x.jsonl, of which 1 do not fit into --max-length" in caplog.text
    assert len(ChatExamples(chats, tokenizer, max_length=200, limit=2)) == 2


def test_examples_of_one_prompt_are_neighbours_if_that_saves_enough(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"

    def read(prompts: str) -> ChatExamples:
        chats = [{"prompt": prompt * 9, "completion": f"{place}"} for place, prompt in enumerate(prompts)]
        path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
        return ChatExamples(open_chats(path), TOKENIZERS["plain"], max_length=99)

    shared = read("abcabcaxyz")
    examples = shared.examples(range(len(shared)))
    text = [TOKENIZERS["plain"].decode([*e.prompt_ids[:1], *e.answers[0][:1]]) for e in examples]
    assert text == ["a0", "a3", "a6", "b1", "b4", "c2", "c5", "x7", "y8", "z9"]
    assert list(shared.prompts) == [0, 3, 5, 7, 8, 9]
    batches = shuffled_batches(shared, batch_size=5, seed=0)
    for batch in (next(batches), next(batches)):
        prompts = [bytes(example.prompt_ids) for example in batch]
        assert len(list(groupby(prompts))) == len(set(prompts)) < 5
    assert list(read("abcadefghi").prompts) == list(range(10))


def test_a_length_that_leaves_out_more_than_a_tenth_is_refused_with_the_lengths(tmp_path: Path) -> None:
    path = _write(tmp_path / "x.jsonl", *("e" * length for length in range(1, 101)))
    message = (
        rf"11 of 100 examples in {path} \(11%\) do not fit into --max-length 99. Half of them have at most "
        "60 tokens, 90% at most 100, 99% at most 109, the longest 110: --max-length 109 keeps 99%"
    )
    with pytest.raises(InvalidInput, match=message):
        ChatExamples(open_chats(path), TOKENIZERS["plain"], max_length=99)
    assert ChatExamples(open_chats(path), TOKENIZERS["plain"], max_length=109).survey.left_out == 1


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [QUESTION, ANSWER]},
        {"prompt": [QUESTION], "answer": "e4", "id": "x"},
        {"prompt": [QUESTION], "chosen": [ANSWER], "rejected": [{"role": "assistant", "content": "a3"}]},
        {"prompt": [QUESTION], "completion": [ANSWER]},
        {"prompt": QUESTION["content"], "completion": "e4"},
    ],
    ids=["messages", "annotations", "pairs", "conversational", "plain"],
)
@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_rows_are_read_in_the_forms_of_rookery_and_trl(
    tmp_path: Path, name: str, row: dict[str, object]
) -> None:
    path = tmp_path / name
    path.write_text(f"{json.dumps(row)}\n" * 2)
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist([row, row]), path)
    chats = open_chats(path)
    assert len(chats) == 2
    assert chats[1].messages == [QUESTION, ANSWER]
    assert len(ChatExamples(chats, TOKENIZERS["plain"], max_length=50)) == 2


@pytest.mark.parametrize(
    "row",
    [
        {"messages": "e4"},
        {"messages": ["e4", "d4"]},
        {"messages": [{"role": "user"}, {"role": "assistant"}]},
        {"messages": [{**QUESTION, "content": None}, ANSWER]},
        {"prompt": "the board", "answer": "e4"},
        {"prompt": None, "answer": "e4"},
        {"prompt": [QUESTION], "chosen": None},
    ],
)
def test_rows_that_are_no_chats_are_named(tmp_path: Path, row: dict[str, object]) -> None:
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "x.parquet")
    with pytest.raises(InvalidInput, match=r"x.parquet, row 0: not a "):
        open_chats(tmp_path / "x.parquet")[0]


@pytest.mark.parametrize(
    ("answers", "box"),
    [
        (["\\boxed{Nf3}", "\\boxed{e2e4}", "\\boxed{O-O}"], "san"),
        (["\\boxed{e2e4}", "\\boxed{e7e8q}", "e4"], "uci"),
        (["e4"], None),
    ],
)
def test_the_notation_of_the_boxes_is_that_of_most_answers(
    tmp_path: Path, answers: list[str], box: str | None
) -> None:
    chats = open_chats(_write(tmp_path / "x.jsonl", *answers))
    assert ChatExamples(chats, TOKENIZERS["plain"], max_length=99).survey.box == box


def test_a_file_without_examples_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("\n\n")
    schema = pa.schema({"prompt": pa.list_(pa.struct({"role": pa.string()})), "answer": pa.string()})
    pq.write_table(schema.empty_table(), tmp_path / "x.parquet")
    for name in ("x.jsonl", "x.parquet"):
        with pytest.raises(InvalidInput, match="no examples in"):
            open_chats(tmp_path / name)


def test_a_chat_that_the_template_refuses_is_named_with_the_reason(tmp_path: Path) -> None:
    strict = _bytes_tokenizer(
        "{% if messages[-1].content == 'd4' %}{{ raise_exception('no d4') }}{% endif %}"
    )
    strict.chat_template += TEMPLATES["chatml"]
    chats = open_chats(_write(tmp_path / "x.jsonl", "e4", "d4", "e5"))
    with pytest.raises(InvalidInput, match=r"x.jsonl, example 2: the chat template rejects .*: no d4"):
        ChatExamples(chats, strict, max_length=99)


def test_parquet_of_which_a_few_bytes_become_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = ["a" * (1 << 18)] * 64
    pq.write_table(pa.table({"prompt": many, "answer": many}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 1 << 18
    monkeypatch.setattr(chat_files, "MAX_TABLE_BYTES", 8 << 20)
    with pytest.raises(InvalidInput, match="more than 8388608 bytes: split the file"):
        open_chats(tmp_path / "x.parquet")


def test_parquet_without_answers_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([{"fen": "x"}]), tmp_path / "x.parquet")
    with pytest.raises(InvalidInput, match=r"x.parquet: columns fen: a chat has messages"):
        open_chats(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(InvalidInput, match="not a Parquet file"):
        open_chats(tmp_path / "y.parquet")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "missing or empty"),
        ('{"messages": [{"role": "user", "content": "x"}]}\n', r"moves.jsonl:1: the last message"),
        ('{"messages": "e4"}\n', r"moves.jsonl:1: not a list of messages: 'e4'"),
        ('{"conversations": []}\n', r"moves.jsonl:1: columns conversations: a chat has messages, or prompt"),
        ('[["e4"]]', r"moves.jsonl, conversation 1: not a chat example: not a message of role and content"),
        ("4\n", r"moves.jsonl:1: not a chat example: '4'"),
        ("BZh9", r"moves.jsonl' is compressed: decompress it first"),
        ('{"messages": [{"role": "assistant", "content": "\\ud800"}]}\n', r"moves.jsonl:1: not a message"),
        ('{"messages": ["e4"]}\n', r"moves.jsonl:1: not a message of role and content: 'e4'"),
        ('{"messages": [{"role": "assistant", "content": null}]}\n', r"moves.jsonl:1: not a message"),
        (
            "\n" + json.dumps({"messages": [QUESTION, ANSWER]}) + "\n\n{nonsense\n",
            r"moves.jsonl:4: not a chat example: b'\{nonsense'",
        ),
    ],
)
def test_bad_examples_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "moves.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        chats = open_chats(path)
        for index in range(len(chats)):
            chats[index]


_ROW = {
    "messages": [QUESTION, {"role": "assistant", "content": "\\boxed{e2e4}"}],
    "alternatives": [
        {"start": 7, "end": 11, "texts": ["e2e4", "e2e3", "d2d4", "a2a3"], "weights": [2, 1, 1, 0]}
    ],
}


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_alternatives_become_the_distribution_of_each_token(
    tmp_path: Path, tiny_model: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(_ROW))
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist([_ROW]), path)
    tokenizer = load_chat_tokenizer(tiny_model)
    [example] = ChatExamples(open_chats(path), tokenizer, max_length=50).examples([0])
    [soft] = example.soft_targets
    assert soft is not None
    said = [(index, tokenizer.decode(token)) for index, token in zip(soft.indices, soft.tokens, strict=True)]
    assert said == [(0, "\\boxed{"), (1, "e2"), (1, "d2"), (2, "e4"), (2, "e3"), (3, "}"), (4, "<|end|>")]
    assert list(soft.weights) == pytest.approx([1, 0.75, 0.25, 2 / 3, 1 / 3, 1, 1])
    assert tokenizer.decode(example.answers[0]) == "\\boxed{e2e4}<|end|>"


@pytest.mark.parametrize(
    ("texts", "targets"),
    [
        (["e2e4", "e2e4q"], {1: {"e2": 1}, 2: {"e4": 1}, 3: {"}": 0.75, "q": 0.25}}),
        (["e2e4", "e2"], {1: {"e2": 1}, 2: {"e4": 0.75, "}": 0.25}, 3: {"}": 1}}),
    ],
)
def test_an_alternative_that_begins_another_is_learned_with_what_follows(
    tmp_path: Path, tiny_model: Path, texts: list[str], targets: dict[int, dict[str, float]]
) -> None:
    path, span = tmp_path / "x.jsonl", {"start": 7, "end": 11, "texts": texts, "weights": [3, 1]}
    path.write_text(json.dumps(_ROW | {"alternatives": [span]}))
    tokenizer = load_chat_tokenizer(tiny_model)
    [example] = ChatExamples(open_chats(path), tokenizer, max_length=50).examples([0])
    [soft] = example.soft_targets
    assert soft is not None
    learned: dict[int, dict[str, float]] = {}
    for index, token, weight in zip(soft.indices, soft.tokens, soft.weights, strict=True):
        learned.setdefault(index, {})[tokenizer.decode(token)] = pytest.approx(weight)
    assert {index: learned[index] for index in targets} == targets


def test_a_token_may_begin_with_the_space_before_the_alternatives() -> None:
    tokenizer = _bytes_tokenizer(TEMPLATES["plain"], ("\u0120", "N"))
    answer = {"role": "assistant", "content": "Kd2 Nf3"}
    span = Alternatives(4, 7, ("Nf3", "Ne2", "e4"), (0.5, 0.3, 0.2))
    [example] = tokenize([Chat([QUESTION, answer], [span])], tokenizer)
    [soft] = example.soft_targets
    assert soft is not None
    targets = {
        (index, tokenizer.decode(token)): weight
        for index, token, weight in zip(soft.indices, soft.tokens, soft.weights, strict=True)
    }
    start = tokenizer.decode(example.answers[0]).index("Kd2")
    assert targets[start + 3, " N"] == pytest.approx(0.8)
    assert targets[start + 3, " "] == pytest.approx(0.2)
    assert targets[start + 4, "f"] == pytest.approx(0.5 / 0.8)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": 8}, "'2e4', characters 8 to 11 of .* must be one of them"),
        ({"texts": ["e2e3", "d2d4"], "weights": [1, 1]}, "'e2e4', characters 7 to 11 .* must be one of them"),
        ({"texts": ["e2e4", "e2e4}"], "weights": [1, 1]}, "the tokens of one begin another"),
        ({"weights": [1, 1]}, "different texts and a weight for each"),
        ({"weights": [0, 0, 0, 0]}, "are not probabilities"),
        ({"weights": None}, "start, end, texts and weights, not"),
    ],
)
def test_alternatives_that_do_not_fit_are_refused(
    tmp_path: Path, tiny_model: Path, change: dict[str, object], said: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(_ROW | {"alternatives": [_ROW["alternatives"][0] | change]}))  # type: ignore[operator]
    with pytest.raises(InvalidInput, match=said):
        ChatExamples(open_chats(path), load_chat_tokenizer(tiny_model), max_length=50)


def test_a_tiny_model_of_pieces_has_a_token_for_each(tmp_path: Path) -> None:
    build_tiny(tmp_path, hidden_size=32, layers=1, intermediate_size=32, pieces=True)
    tokenizer = load_chat_tokenizer(tmp_path)
    position = Position("p", "4k3/1b6/8/8/8/8/8/R3K3 w Q - 0 1", 0, Phase.ENDGAME, "g")
    [shown] = render(position, style="mover-twice").messages
    assert shown.content == "Q - bb7ke8 Ra1Ke1 Ra1Ke1"
    question = {"role": "user", "content": shown.content}
    [example] = tokenize([Chat([question, {"role": "assistant", "content": "e7e8b b2b4"}])], tokenizer)
    mine = ["Ra1", "Ke1"]
    board = ["Q", " ", "-", " ", "bb7", "ke8", " ", *mine, " ", *mine]
    assert tokenizer.convert_ids_to_tokens(example.prompt_ids) == ["<|user|>", *board, "<|assistant|>"]
    answer = ["e7", "e8", "b", " ", "b2", "b4", "<|end|>"]
    assert tokenizer.convert_ids_to_tokens(example.answers[0]) == answer


def test_a_json_file_has_a_list_of_conversations(tmp_path: Path) -> None:
    """`analysis.json` of `rookery data annotate`, and of those who write one by hand."""
    path = tmp_path / "analysis.json"
    path.write_text(json.dumps([[QUESTION, ANSWER], {"messages": [ANSWER]}], indent=2))
    chats = open_chats(path)
    assert [chat.messages for chat in (chats[0], chats[1])] == [[QUESTION, ANSWER], [ANSWER]]
    for content, complaint in (
        ("[]", "it has no rows"),
        ("[[", "analysis.json is not JSON"),
        ('[["e4"]]', "analysis.json, conversation 1: .* not a message of role and content: 'e4'"),
        ('[{"text": 1}]', "analysis.json, conversation 1: not a chat example: columns text"),
    ):
        path.write_text(content)
        with pytest.raises(InvalidInput, match=complaint):
            open_chats(path)[0]
