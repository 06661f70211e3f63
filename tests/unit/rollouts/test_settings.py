import pytest

from rookery.config.rollouts import RolloutsSettings
from rookery.errors import SetupError
from rookery.replicas import split_urls


def parse(*argv: str) -> RolloutsSettings:
    return RolloutsSettings.parse(list(argv), prog="rollouts")


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUTS_GROUP_SIZE", "4")
    monkeypatch.setenv("ROOKERY_RUN", "from-env")
    assert parse().group_size == 4
    assert parse().run == "from-env"
    assert parse("--group-size", "16", "--run", "mine").group_size == 16
    assert parse("--run", "mine").run == "mine"


def test_several_servers() -> None:
    assert split_urls("http://a:1, http://b:2") == ("http://a:1", "http://b:2")
    urls = "http://a:1,dns:///inference.rookery:8000,dns:///[::1]:8000"
    assert parse("--inference-urls", urls).inference_urls == urls
    assert len(split_urls(urls)) == 3


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--style", "runes", "mover-squares"),
        ("--inference-urls", "localhost:8000", "http://"),
        ("--inference-urls", "http://a:1,dns://inference:8000", "dns:///NAME:PORT"),
        ("--inference-urls", "dns:///inference", "dns:///NAME:PORT"),
        ("--inference-urls", "http://host:port", "not a URL such as http://HOST:PORT"),
        ("--inference-urls", " ", "one or more"),
        ("--group-size", "1", "greater than or equal to 2"),
        ("--run", "a b", "pattern"),
    ],
)
def test_a_wrong_value_is_named(flag: str, value: str, said: str) -> None:
    with pytest.raises(SetupError, match=said) as caught:
        parse(flag, value)
    assert repr(value) in str(caught.value) or value in str(caught.value)
