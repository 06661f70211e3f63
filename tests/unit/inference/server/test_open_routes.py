"""Which of vLLM's routes are served."""

import pytest
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from rookery.errors import SetupError
from services.inference.server.plugin import RookeryPlugin


def paths(asked: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setenv("INFERENCE_OPEN_ROUTES", asked)
    app = FastAPI(openapi_url=None)
    for path in ("/v1/models", "/tokenize", "/scale_elastic_ep"):
        app.get(path)(lambda: {})
    app.mount("", StaticFiles(directory="."))
    RookeryPlugin().attach_router(app)
    return {getattr(route, "path", "?") for route in app.routes}


def test_only_the_routes_that_are_named_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = {"/scale_elastic_ep", ""}
    served = paths("", monkeypatch)
    assert "/v1/models" in served
    assert not served & {"/tokenize", *closed}
    served = paths(" /tokenize , ", monkeypatch)
    assert "/tokenize" in served
    assert not served & closed


def test_a_route_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match="vLLM has no route /tokenise "):
        paths("/tokenise", monkeypatch)
