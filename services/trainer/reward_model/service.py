"""The reward model as a process."""

import torch

from rookery.serving import Service, serve
from services.trainer.distributed.placement import device_named
from services.trainer.reward_model.app import create_app
from services.trainer.reward_model.desk import Desk
from services.trainer.reward_model.scorer import RewardScorer
from services.trainer.settings import RewardServerSettings


async def run(settings: RewardServerSettings) -> None:
    """Serves until SIGINT or SIGTERM.

    Raises:
        SetupError: no reward model in that directory, or the port is taken.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    scorer = RewardScorer(settings.model, rows=settings.rows, device=device_named(settings.device))
    desk = Desk(scorer, limit=settings.queue)
    await serve(
        Service(
            name="reward-model",
            app=create_app(desk),
            host=settings.host,
            port=settings.port,
            port_setting="--port (REWARD_SERVER_PORT)",
            background=(desk.run,),
        )
    )
