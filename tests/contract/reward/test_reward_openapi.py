"""The service's own OpenAPI document, taken at its word: no answer is a 5xx, or one that it does not declare.

tests/contract/test_hostile_callers.py sends the routes that judge what the document allows, and much that it
forbids. Here they get chess.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode

from tests.babble import completions
from tests.contract.running_service import RunningService
from tests.openapi import CHECKS, EXAMPLES, send_all

pytestmark = pytest.mark.stockfish

JUDGING = ("/v1/score", "/v1/score/batch", "/v1/episodes", "/v1/slime", "/v1/openrlhf")


@pytest.fixture(scope="module")
def document(service: RunningService) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{service.url}/openapi.json")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_every_probe_is_declared(document: schemathesis.BaseSchema, path: str) -> None:
    send_all(document[path]["GET"], GenerationMode.POSITIVE)


def test_every_verdict_is_declared(document: schemathesis.BaseSchema) -> None:
    """The document knows no chess, so its requests are given positions and completions."""
    answers = [*completions(seed=5, count=400)]

    @settings(
        max_examples=EXAMPLES * 3, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(
        case=document["/v1/score"]["POST"].as_strategy(generation_mode=GenerationMode.POSITIVE),
        answer=st.sampled_from(answers),
        scheme=st.sampled_from(["", "delta", "best", "accuracy", "minmax", "delta+0.5*format", "nonsense"]),
    )
    def every_case(case: schemathesis.Case, answer: tuple[str, str], scheme: str) -> None:
        fen, response = answer
        response = response.encode(errors="replace").decode()
        case.body = {**case.body, "fen": fen, "response": response, "scheme": scheme, "task": "move"}
        case.validate_response(case.call(timeout=30), checks=CHECKS)

    every_case()


def test_the_document_declares_nothing_else(document: schemathesis.BaseSchema) -> None:
    assert set(document) == {*JUDGING, "/healthz", "/readyz", "/metrics"}
