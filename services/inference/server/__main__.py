"""`python -m services.inference.server`: starts vLLM's OpenAI server with Rookery's routes.

`execve` replaces this process by vLLM, so signals reach vLLM directly: see `shutdown`.
"""

import os
import sys
from contextlib import suppress

from rookery.config.inference import ServerSettings
from rookery.errors import SetupError, Unavailable
from rookery.settings import fail


def main(argv: list[str]) -> int:
    try:
        settings = ServerSettings.parse(argv, prog="python -m services.inference.server")
        arguments, variables = _prepare(settings)
    except SetupError as error:
        return fail(error)
    return os.execve(arguments[0], arguments, variables)  # noqa: S606 - vLLM is to be this process


def _prepare(settings: ServerSettings) -> tuple[list[str], dict[str, str]]:
    from rookery.connections import raise_descriptor_limit
    from rookery.hub import check_allowed
    from rookery.processes.ports import bind
    from rookery.streams import RunStreams
    from services.inference.server import vllm_command

    raise_descriptor_limit()
    check_allowed(settings.model, settings.allowed_models)
    settings.access.warn_if_open("inference", settings.host)
    cpu = vllm_command.runs_on_cpu(settings.device, cpu_build=vllm_command.vllm_is_cpu_build())
    with bind(settings.host, settings.port, setting="--port or INFERENCE_PORT") as probe:
        port = int(probe.getsockname()[1])
    if settings.follow:
        with suppress(Unavailable):  # Redis may start later, but a wrong password is fatal
            RunStreams(settings.redis_url, settings.run).redis.ping(once=True)
    command = vllm_command.command(settings, port=port, cpu=cpu)
    return command, vllm_command.environment(settings, os.environ, cpu=cpu)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
