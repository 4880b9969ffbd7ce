"""How much of a campaign is run: a sample by default, all of it with GENSOR_CAMPAIGN=full.

The sample rotates with the day, so that all of it is seen in time; GENSOR_CAMPAIGN_SEED repeats one.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from typing import TypeVar

FULL = os.environ.get("GENSOR_CAMPAIGN", "") == "full"
SEED = int(os.environ.get("GENSOR_CAMPAIGN_SEED") or time.time() // 86400)

Point = TypeVar("Point")


def sample(points: Sequence[Point], few: int, many: int | None = None) -> list[Point]:
    """`few` of the points, in a full campaign `many` or all of them: evenly spread, the first at random."""
    print(f"GENSOR_CAMPAIGN_SEED={SEED}")  # pytest shows it beside a failure
    wanted = (len(points) if many is None else many) if FULL else few
    if len(points) <= wanted:
        return list(points)
    offset = random.Random(SEED).random()
    return [points[int((index + offset) * len(points) / wanted)] for index in range(wanted)]


def tell(what: str, figure: object) -> None:
    """A figure of a campaign, for docs/database.md; pytest -s shows it."""
    print(f"campaign: {what}: {figure}")
