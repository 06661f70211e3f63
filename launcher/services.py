"""The services: their modules, subcommands and default ports, and how settings are passed to them."""

from collections.abc import Mapping

MODULES = {
    "feed": "services.data.feed",
    "data": "services.data",
    "archive": "services.data.archiver",
    "reward": "services.reward",
    "reward-model": "services.trainer",
    "inference": "services.inference.server",
    "trainer": "services.trainer",
    "rollouts": "services.inference.rollouts",
    "arena": "services.arena",
    "viewer": "services.viewer",
}

PORTS = {
    "feed": {"port": 8005},
    "data": {"port": 8001, "grpc_port": 50052},
    "reward": {"port": 8080, "grpc_port": 50051},
    "reward-model": {"port": 8007},
    "inference": {"port": 8000},
    "trainer": {"port": 8003},
    "rollouts": {"port": 8004},
    "archive": {"port": 8006},
    "arena": {"port": 8009},
    "viewer": {"port": 8010},
}
"""Default ports by service and setting."""

SUBCOMMANDS = {"reward-model": ("serve-reward-model",), "arena": ("watch",)}
"""The words after the module's name, where a module has several commands."""


def table(service: str) -> str:
    """The service's table in a TOML file."""
    return "reward_server" if service == "reward-model" else service  # `rookery reward-model` trains one


def environment_variable(service: str, key: str) -> str:
    """The variable that sets a service's setting.

    >>> environment_variable("reward", "port"), environment_variable("reward-model", "port")
    ('REWARD_PORT', 'REWARD_SERVER_PORT')
    """
    return f"{table(service)}_{key}".upper()


def as_flags(values: Mapping[str, object]) -> list[str]:
    """Settings as command-line arguments. Each value of a tuple has a flag of its own.

    >>> as_flags({"max_tokens": 9, "follow": True, "suites": ("a", "b"), "k": 1})
    ['--max-tokens', '9', '--follow', '--suites', 'a', '--suites', 'b', '-k', '1']
    """
    flags: list[str] = []
    for key, value in values.items():
        name = key.replace("_", "-")
        for text in map(str, value if isinstance(value, tuple) else (value,)):
            if text.lower() in ("true", "false"):
                flags.append(f"--{name}" if text.lower() == "true" else f"--no-{name}")
            else:
                flags += [f"--{name}" if len(name) > 1 else f"-{name}", text]
    return flags
