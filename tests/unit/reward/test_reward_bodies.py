"""What is written straight from the records is exactly what the contract's bodies say."""

import json

from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import EngineFault, InvalidInput, RookeryError
from rookery.trace import Verdict
from services.reward.requests import BatchResponse, VerdictBody, batch_json, verdict_json
from tests.unit.rookery.records import verdicts

errors = st.builds(InvalidInput, st.text(max_size=20)) | st.builds(EngineFault, st.text(max_size=20))


@given(verdicts)
def test_a_verdict_is_its_body(verdict: Verdict) -> None:
    written = json.loads(verdict_json(verdict))
    assert VerdictBody.model_validate(written).model_dump(mode="json") == written
    assert written["reward"] == verdict.reward


@given(st.lists(verdicts | errors, max_size=4))
def test_a_batch_is_its_body(results: list[Verdict | RookeryError]) -> None:
    written = json.loads(batch_json(results))
    assert BatchResponse.model_validate(written).model_dump(mode="json") == written
    for slot, result in zip(written["verdicts"], results, strict=True):
        if isinstance(result, Verdict):
            assert slot == json.loads(verdict_json(result))
        else:
            assert (slot["status"], slot["detail"]) == (result.http_status, str(result))
