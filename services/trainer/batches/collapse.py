"""The alarm for a policy that always answers the same: groups whose rewards are all equal teach nothing.

As ART's fail-safe, but without stopping the run: that is for whoever watches to decide.
"""

import logging

from services.trainer.settings import ObjectiveSettings

logger = logging.getLogger(__name__)


def collapsed_steps(before: int, *, share: float, step: int, settings: ObjectiveSettings) -> int:
    """Steps on end, this one included, with at least `collapse_share` of all groups without variance.

    `share` is this step's, groups that dynamic sampling dropped included. Logs an error at the
    `collapse_steps`-th such step, and at every multiple of it.
    """
    if share < settings.collapse_share:
        return 0
    now = before + 1
    if now % settings.collapse_steps == 0:
        logger.error(
            "step %d: for %d steps on end %.0f%% or more of the groups had equal rewards",
            step, now, 100 * settings.collapse_share,
        )  # fmt: skip
    return now
