"""The modules, subcommands and default ports of the services."""

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
