"""A service's own OpenAPI document, taken at its word: what it allows, and much that it forbids, is sent."""

from collections import Counter
from collections.abc import Sequence

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rookery.access import OPEN, Access

EXAMPLES = 40

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def send_all(
    operation: schemathesis.schemas.APIOperation, mode: GenerationMode, *, access: Access = OPEN
) -> Counter[int]:
    """Sends examples of an operation, and returns the statuses: all are declared, and none is a 5xx."""
    seen = Counter[int]()

    @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def every_case(case: schemathesis.Case) -> None:
        answer = case.call(timeout=300, headers=access.headers)
        case.validate_response(answer, checks=CHECKS)
        seen[answer.status_code] += 1

    every_case()
    return seen


def attack(url: str, *, access: Access = OPEN, tag: str = "", without: Sequence[str] = ()) -> Counter[int]:
    """Sends examples of each operation of the service at `url`, but for probes and the paths `without`.

    `tag` chooses the operations with this tag.
    """
    document = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=access.headers)
    document = document.exclude(tag="probes")
    if without:
        document = document.exclude(path=list(without))
    if tag:
        document = document.include(tag=tag)
    seen = Counter[int]()
    for found in document.get_all_operations():
        operation = found.ok()
        refuses = operation.body or operation.query  # any text is a valid part of a path
        for mode in GenerationMode if refuses else [GenerationMode.POSITIVE]:
            seen += send_all(operation, mode, access=access)
    return seen
