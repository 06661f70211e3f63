"""What is written straight from the records is what the OpenAPI document says of them."""

import json
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from rookery.errors import EngineFault, InvalidInput, RookeryError
from rookery.trace import Verdict
from services.reward.requests import BatchResponse, batch_json, verdict_json
from tests.unit.rookery.records import verdicts

VERDICT = TypeAdapter(Verdict)
errors = st.builds(InvalidInput, st.text(max_size=20)) | st.builds(EngineFault, st.text(max_size=20))


@given(verdicts)
def test_a_verdict_in_json_has_all_fields_and_is_the_verdict(verdict: Verdict) -> None:
    written = verdict_json(verdict)
    assert VERDICT.validate_json(written) == verdict
    assert list(json.loads(written)) == [field.name for field in fields(Verdict)]


def test_the_schema_of_a_verdict_requires_and_describes_its_fields() -> None:
    schema = VERDICT.json_schema(mode="serialization")
    assert schema["required"] == list(schema["properties"]) == [field.name for field in fields(Verdict)]
    for name, part in schema["$defs"].items():
        assert part.get("required", []) == list(part.get("properties", [])), name
    assert schema["properties"]["regret"]["description"] == "`win_before - win_after`, at least 0."


@given(st.lists(verdicts | errors, max_size=4))
def test_a_batch_is_its_body(results: list[Verdict | RookeryError]) -> None:
    written = json.loads(batch_json(results))
    assert BatchResponse.model_validate(written).model_dump(mode="json") == written
    for slot, result in zip(written["verdicts"], results, strict=True):
        if isinstance(result, Verdict):
            assert slot == json.loads(verdict_json(result))
        else:
            assert (slot["status"], slot["detail"]) == (result.http_status, str(result))
