"""Reports a policy that always gives the same answer: groups whose rewards are all equal teach nothing.

Like ART's fail-safe, but it does not stop the run; the user decides.
"""

import logging

from services.trainer.settings import ObjectiveSettings

logger = logging.getLogger(__name__)


def collapsed_steps(before: int, *, share: float, step: int, settings: ObjectiveSettings) -> int:
    """Returns the number of consecutive collapsed steps, up to and including this one.

    A step is collapsed if at least `collapse_share` of its groups have rewards without variance. `share` is
    that of this step, including the groups that dynamic sampling dropped; `before` is the number of
    consecutive collapsed steps before it. Logs an error at every multiple of `collapse_steps`.
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
