"""How much of a campaign is run: a sample by default, all of it with GENSOR_CAMPAIGN=full.

The commit's hash seeds the sample, so that all of it is seen in time, and a commit sees the same sample everywhere.
GENSOR_CAMPAIGN_SEED, which the header of pytest names, repeats one.
"""

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

FULL = os.environ.get("GENSOR_CAMPAIGN", "") == "full"
#: in place of the commit's hash, where there is no git or no commit
WITHOUT_GIT = 6


def seed_of(folder: Path) -> int:
    """Return GENSOR_CAMPAIGN_SEED, else the first 32 bits of the hash of the commit that is checked out in a folder."""
    if asked := os.environ.get("GENSOR_CAMPAIGN_SEED"):
        return int(asked)
    try:
        command = ["git", "rev-parse", "--verify", "HEAD"]
        head = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return WITHOUT_GIT
    return int(head[:8], 16)


SEED = seed_of(Path(__file__).resolve().parent)

Point = TypeVar("Point")


def sample(points: Sequence[Point], few: int, many: int | None = None) -> list[Point]:
    """`few` of the points, in a full campaign `many` or all of them: evenly spread, the first at random."""
    print(f"GENSOR_CAMPAIGN_SEED={SEED}")  # pytest shows it with a failure
    wanted = (len(points) if many is None else many) if FULL else few
    if len(points) <= wanted:
        return list(points)
    offset = random.Random(SEED).random()
    return [points[int((index + offset) * len(points) / wanted)] for index in range(wanted)]


def tell(what: str, figure: object) -> None:
    """A figure of a campaign, for docs/database.md; pytest -s shows it."""
    print(f"campaign: {what}: {figure}")
