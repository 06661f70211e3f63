"""OpenAI's routes for the list of models and for one model: the base model, the versions and the alias.

vLLM's list has an adapter under its first name for each of its names, so twice and never as `policy`, and
vLLM has no route for one model.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

router = APIRouter(tags=["rookery"])

_NAME_CHARS = 200


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, Any]:
    """Every name that a request may give."""
    return {"object": "list", "data": await _cards(request)}


@router.get("/v1/models/{name:path}")
async def one_model(name: str, request: Request) -> JSONResponse:
    """The model that a request for `name` is answered by; 404 in vLLM's words if there is none."""
    if card := next((card for card in await _cards(request) if card["id"] == name), None):
        return JSONResponse(card)
    message = f"The model `{name[:_NAME_CHARS]}` does not exist."
    error = {"message": message, "type": "NotFoundError", "param": "model", "code": 404}
    return JSONResponse({"error": error}, status_code=404)


async def _cards(request: Request) -> list[dict[str, Any]]:
    models = request.app.state.openai_serving_models
    cards = [card.model_dump() for card in (await models.show_available_models()).data]
    # The last ones are of the adapters, in the order of their names in requests.
    for card, name in zip(reversed(cards), reversed(models.lora_requests), strict=False):
        card["id"] = name
    return cards
