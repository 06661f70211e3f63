"""`POST /v1/move`: asks a served model for a move, in the style of prompts that it was trained on.

The question goes through `/v1/chat/completions` or `/v1/completions` of this server, as from any client.
"""

from dataclasses import replace
from typing import Any

import httpx
from fastapi import Request
from pydantic import Field, PositiveInt

from rookery.chosen_move import chosen_move
from rookery.clients import InferenceClient
from rookery.config.inference import ServerSettings
from rookery.errors import InvalidInput
from rookery.fen import read_fen
from rookery.games import position_of
from rookery.middleware import StrictBody
from rookery.model_defaults import model_defaults
from rookery.prompt import StyleName, render
from rookery.trace import Sampling
from services.inference.server.policies import ALIAS

PATH = "/v1/move"
MAX_MOVES = 600


class MoveRequest(StrictBody):
    """A position, and how to ask."""

    fen: str = Field(max_length=200)
    last_moves: list[str] = Field(default=[], max_length=MAX_MOVES)
    """The moves before it in UCI, oldest first, for styles that show them."""
    model: str = Field(default="", max_length=200)
    """A model that the server serves. Default: the newest version, or the base model if there is none."""
    style: StyleName | None = None
    """Default: that of the server's --style."""
    max_tokens: PositiveInt | None = None
    """Default: the server's --answer-tokens."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    seed: int = Field(default=0, ge=0, lt=1 << 63)


async def move(body: MoveRequest, request: Request) -> dict[str, Any]:
    """The move that the model chooses, with its whole answer; `move` is null if none is legal."""
    settings = ServerSettings()
    style, tokens = body.style or settings.style, body.max_tokens or settings.answer_tokens
    if style is None or tokens is None:
        defaults = model_defaults(settings.model, style=style)
        style, tokens = style or defaults.style, tokens or defaults.max_tokens
    if style is None:
        raise InvalidInput(f"nothing tells the prompt style of {settings.model!r}: set `style`")
    board = read_fen(body.fen)
    if board.is_game_over():
        raise InvalidInput(f"the game is over: {board.fen()!r}")
    position = replace(position_of(board), last_moves=tuple(body.last_moves))
    prompt = render(position, style=style)
    model = body.model or await _served_name(request)
    transport = httpx.ASGITransport(app=request.app)
    async with InferenceClient("http://127.0.0.1", access=settings.access, transport=transport) as client:
        generation = await client.complete(
            prompt,
            model=model,
            count=1,
            sampling=Sampling(body.temperature, max_tokens=tokens),
            seed=body.seed,
        )
    (completion,) = generation.completions
    reading = chosen_move(completion.text, prompt, board, truncated=completion.truncated)
    return {
        "fen": board.fen(),
        "model": model,
        "style": style,
        "move": {"uci": reading.move.uci(), "san": board.san(reading.move)} if reading.move else None,
        "outcome": reading.outcome,
        "text": completion.text,
        "tokens": len(completion.token_ids),
    }


async def _served_name(request: Request) -> str:
    """The alias of the policy, or the name of the base model if no version is served."""
    state = request.app.state
    if state.rookery.policies.served is not None:
        return ALIAS
    return str((await state.openai_serving_models.show_available_models()).data[0].id)
