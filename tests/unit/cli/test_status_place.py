"""Where `rookery status` looks for services that it did not start."""

import pytest

from launcher.services import SERVICES
from launcher.status import StatusSettings


@pytest.mark.parametrize(
    ("flags", "reward"),
    [
        ([], "http://127.0.0.1:8080/readyz"),
        (["--host", "10.0.0.7"], "http://10.0.0.7:8080/readyz"),
        (["--host", "{service}"], "http://reward:8080/readyz"),
    ],
)
def test_services_are_sought_on_their_default_ports(flags: list[str], reward: str) -> None:
    settings = StatusSettings.parse(["--redis-url", "redis://r:6379/0", *flags], prog="rookery status")
    place = settings.place()
    assert place["probes"].keys() == SERVICES.keys()
    assert place["probes"]["reward"] == reward
