import logging

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import generate_latest

from rookery import waits
from rookery.serving import add_probes


async def ready() -> None:
    return None


async def test_a_wait_longer_than_expected_is_told_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    add_probes(app, ready=ready)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        with waits.waiting("verdicts", "reward", expected_s=1000.0):
            assert (await http.get("/readyz")).json() == {"status": "ready"}
        with waits.waiting("positions", "the feed", expected_s=0.0), caplog.at_level(logging.WARNING):
            answer = await http.get("/readyz")
            waits.report()
            waits.report()
            metrics = generate_latest().decode()
        assert answer.status_code == 200
        assert answer.json()["waiting"] == "positions from the feed for 0 s"
        assert (await http.get("/readyz")).json() == {"status": "ready"}
    said = [record.getMessage() for record in caplog.records if record.name == "rookery.waits"]
    assert said[0] == "waits for positions from the feed for 0 s, longer than the expected 0 s"
    assert said[-1] == "waited for positions from the feed for 0 s, and no longer does"
    assert 'rookery_waiting_seconds{peer="the feed",what="positions"}' in metrics
    waits.report()
    assert 'what="positions"' not in generate_latest().decode()
