"""One group as the page shows it: the archive's record, with candidates, tokens and claims."""

import functools
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import chess
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

import commentary
from rookery.answers import text_to_read
from rookery.candidates import candidates_of, distinct
from rookery.hub import cached
from rookery.prompt import mirrored_move
from rookery.trace import Verdict
from services.viewer.index import Index, Row
from services.viewer.runs import RunFolder

READ_CHARS = 4000
"""Characters of reasoning that are read for claims. The slowest text known of this length takes a second."""


_REPLY = re.compile(r"([a-hKQRBNO][\w+#=-]{1,11})(:|$)")
"""A game's observation: the opponent's move, then the result if it has ended."""
_NO_VERDICT: Row = {field.name: None for field in fields(Verdict)} | {"outcome": "call", "components": {}}


def whole_group(index: Index, run: RunFolder, id: str) -> Row:
    """A group with, for each turn, its advantage, candidates, claims and tokens, and what became of it.
    Raises `NotFound` if the run has no such group."""
    row = index.whole(run.name, id)
    advantages = index.query(
        "SELECT episode, turn, result, reward, advantage, surprise FROM answers WHERE g = ? ORDER BY i",
        [row.pop("number")],
    )
    settings = run.trainer_settings()
    masked = settings is not None and settings.get("mask_truncated", True)
    tokenizer = _tokenizer(str(row["base_model"]).partition("@")[0])
    if row["step"] is None and (step := run.trained().get(id)) is not None:  # the index is not that far yet
        row |= {"step": step, "age": step - 1 - row["policy"]["number"]}
    version = row["step"] or run.trained_in_vain().get(id)
    figures = run.token_figures(version, id, answers=len(advantages))
    trace_ids = [trace["id"] for trace in row["traces"]]
    real = chess.Board(row["position"]["fen"])  # the prompts may mirror it
    row["traces"] = row.pop("turns")
    for number, (trace, computed) in enumerate(zip(row["traces"], advantages, strict=True)):
        completion, verdict = trace["completion"], trace["verdict"] or _NO_VERDICT
        board = chess.Board((trace.pop("prompt", None) or row["prompt"])["fen"])
        trace["before"] = []
        if not computed["turn"]:
            real.set_fen(row["position"]["fen"])
            trace["before"] = _begun(real, board)
        text = completion["text"]
        verdict = verdict | {"reward": computed.pop("reward")}
        verdict["components"] = dict(verdict["components"]) | dict(trace.pop("rewards"))
        trace |= computed | {
            "id": trace_ids[computed["episode"]],
            "fen": board.fen(),
            "real_fen": real.fen(),
            "mirrored": real.turn != board.turn,
            "verdict": verdict,
            "no_loss": bool(masked and completion["finish_reason"] == "length"),
        }
        trace["played"] = _play(real, verdict, trace["observation"], mirrored=trace["mirrored"])
        trace["ratios"] = figures["ratios"][number]
        trace["token_advantages"] = figures["advantages"][number]
        trace["candidates"] = legal_candidates(text, board)
        trace["sentences"] = verdict.pop("sentences", None) or sentences_of(
            board.fen(), text, (verdict["move"] or {}).get("uci", "")
        )
        trace["tokens"] = _token_texts(tokenizer, completion.pop("token_ids"))
        for unused in ("prompt_token_ids", "policy", "continues"):
            trace.pop(unused, None)
    row["prompt_tokens"] = len(row.pop("prompt_token_ids"))
    row["trained"], row["fate"] = version, _fate(run, row, version)
    for unused in ("file_row_number", "rewards", "places", "results"):
        row.pop(unused)
    return row


def _begun(real: chess.Board, shown: chess.Board) -> list[Row]:
    """Makes the move by which an opponent began a game before its first prompt, and returns it with the
    position after it. `shown` is the board of that prompt, which may be mirrored."""
    seen = shown.epd()
    if seen in (real.epd(), real.mirror().epd()):
        return []
    for move in real.legal_moves:
        after = real.copy(stack=False)
        after.push(move)
        if seen in (after.epd(), after.mirror().epd()):
            return [{"uci": move.uci(), "san": real.san_and_push(move), "fen": after.fen()}]
    return []


def _play(board: chess.Board, verdict: Row, observation: str, *, mirrored: bool) -> list[Row]:
    """Makes the policy's move of a turn and its opponent's reply on the board, and returns them, each with
    the position after it. Nothing follows a move that is not legal there."""
    uci = (verdict["move"] or {}).get("uci", "")
    reply = _REPLY.match(observation)
    played: list[Row] = []
    for move in (mirrored_move(uci) if mirrored and uci else uci, reply[1] if reply else ""):
        try:
            parsed = board.parse_uci(move) if not played else board.parse_san(move)
        except ValueError:
            break
        played.append({"uci": parsed.uci(), "san": board.san_and_push(parsed), "fen": board.fen()})
    return played


def _fate(run: RunFolder, row: Row, version: int | None) -> str:
    """What became of a group, as far as the files of the run tell. `version` was made by training on it."""
    if row["step"] is not None:
        return f"trained in step {row['step']}, on version {row['step'] - 1}, at age {row['age']}"
    if version is not None:
        return f"trained in step {version}, which was abandoned: the run went back to an earlier version"
    metrics = run.metrics()
    if not metrics:
        return "not trained: the run has no trainer"
    if row["created_at"] > metrics[-1]["time"] - metrics[-1].get("step_s", 0.0):
        return "not trained yet: it came after the last step's groups"
    reasons = ", ".join(f"{reason.replace('_', ' ')} ({count})" for reason, count in run.dropped().items())
    total = f" (the run dropped in total: {reasons})" if reasons else ""
    return f"not in a batch: waiting or dropped{total}"


def legal_candidates(text: str, board: chess.Board) -> list[Row]:
    """The legal moves that a text names before its answer, each once."""
    legal = {move.uci(): board.san(move) for move in board.legal_moves}
    return [{"uci": uci, "san": legal[uci]} for uci in distinct(candidates_of(text, board)) if uci in legal]


def sentences_of(fen: str, text: str, uci: str) -> list[Row]:
    """The claims of a text that chose the move `uci`, read here. Moves alone are not sentences."""
    try:
        reading = commentary.read(fen, text_to_read(text, uci, chars=READ_CHARS))
    except ValueError:  # a position of Chess960, which the reader does not know
        return []
    sentences = [
        {
            "start": sentence.start,
            "end": sentence.end,
            "read": sentence.status not in ("partly", "unread"),
            "claims": [
                {"concept": claim.concept, "start": claim.start, "end": claim.end, "true": claim.true}
                for claim in sentence.claims
            ],
        }
        for sentence in reading.sentences
    ]
    return sentences if any(sentence["claims"] for sentence in sentences) else []


@functools.lru_cache(maxsize=8)
def _tokenizer(model: str) -> Tokenizer | None:
    """The tokenizer of a model that is on this disk; None without one. Nothing is downloaded."""
    path = (cached(model) or Path(model)) / "tokenizer.json"
    return Tokenizer.from_file(str(path)) if path.is_file() else None


def _token_texts(tokenizer: Tokenizer | None, token_ids: Sequence[int]) -> list[str]:
    """The text of each token; its number in angle brackets without a tokenizer. The bytes of one character
    may be in several tokens: the last of them has the character."""
    if tokenizer is None:
        return [f"<{token}>" for token in token_ids]
    stream = DecodeStream(skip_special_tokens=False)
    return [stream.step(tokenizer, token) or "" for token in token_ids]


def json_safe(value: Any) -> Any:
    """The value without NaN and infinities, which JSON does not know."""
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, dict):
        return {key: json_safe(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(each) for each in value]
    return value
