"""`python -m services.inference.server`: starts vLLM's OpenAI server with Rookery's routes.

`execve` replaces this process by vLLM, so signals reach vLLM directly: see `shutdown`.
"""

import os
from contextlib import suppress
from typing import NoReturn

from rookery.command_line import main_of
from rookery.config.inference import ServerSettings
from rookery.errors import Unavailable


def run(settings: ServerSettings) -> NoReturn:
    """Becomes vLLM's server. Raises `SetupError` if the model is missing or not allowed, the port is taken,
    or Redis refuses the password."""
    from rookery.connections import raise_descriptor_limit
    from rookery.hub import check_allowed
    from rookery.processes.ports import bind
    from rookery.streams import RunStreams
    from services.inference.server import vllm_command

    raise_descriptor_limit()
    check_allowed(settings.model, settings.allowed_models)
    settings.access.warn_if_open("inference", settings.host)
    cpu = vllm_command.runs_on_cpu(settings.device, cpu_build=vllm_command.vllm_is_cpu_build())
    vllm_command.check_flags(settings)
    with bind(settings.host, settings.port, setting="--port or INFERENCE_PORT") as probe:
        port = int(probe.getsockname()[1])
    if settings.follow:
        with suppress(Unavailable):  # Redis may start later, but a wrong password is fatal
            RunStreams(settings.redis_url, settings.run).redis.ping(once=True)
    command = vllm_command.command(settings, port=port, cpu=cpu)
    variables = vllm_command.environment(settings, os.environ, cpu=cpu)
    os.execve(command[0], command, variables)  # noqa: S606 - vLLM is to be this process


main = main_of("serve inference", __name__)
