"""`python -m services.inference.rollouts`: turns positions into scored groups until stopped."""

import asyncio
import json
import logging

from rookery.command_line import main_of
from rookery.config.rollouts import RolloutsSettings
from rookery.masking import mask_setting

logger = logging.getLogger("services.inference.rollouts")


async def run(settings: RolloutsSettings) -> None:
    """Generates until SIGINT or SIGTERM."""
    from rookery.clients import RewardClient
    from rookery.serving import add_problem_handlers, background_service, serve
    from rookery.streams import RunStreams
    from services.inference.rollouts.admission import Admission, Lead
    from services.inference.rollouts.group_generator import GroupGenerator
    from services.inference.rollouts.loop import Loop
    from services.inference.rollouts.peers import Peers

    logger.info("settings %s", json.dumps(mask_setting(settings.model_dump(mode="json"))))
    changed = asyncio.Event()
    streams = RunStreams(settings.redis_url, settings.run)
    reward = RewardClient(settings.reward_target, access=settings.access, wait_for_ready=True)
    peers = Peers(settings.inference_urls, reward, access=settings.access, changed=changed)
    lead = Lead(settings.batch_groups, settings.staleness, just_in_time=settings.just_in_time)
    generator = GroupGenerator(settings, peers)
    loop = Loop(
        streams,
        generator,
        Admission(lead, settings.max_inflight),
        consumer=settings.consumer,
        accept_reward_version=settings.accept_reward_version,
        changed=changed,
    )

    async def ready() -> str | None:
        return await streams.redis.unreachable() or peers.unavailable_reason()

    async def make_groups(stopping: asyncio.Event) -> None:
        await asyncio.to_thread(streams.agree, settings.terms)
        await loop.run(stopping)

    async def close() -> None:
        await asyncio.gather(generator.players.close(), peers.close())

    tasks = (streams.redis.stop_waiting, peers.watch, loop.keep, generator.players.keep, make_groups)
    service = background_service(settings, "rollouts", *tasks, ready=ready)
    add_problem_handlers(service.app)
    service.on_stop = close
    await serve(service)


main = main_of("serve rollouts", __name__)
