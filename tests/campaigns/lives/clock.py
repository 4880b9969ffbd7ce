"""How long looks at files take, where the machine may be busy with other things."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.campaign_size import FULL

LONGEST = 1.0  # seconds of this process's CPU; a look that waits for something takes no CPU, and is caught by HANGING
HANGING = 20.0  # seconds by the clock


class Clock:
    """The longest look of each name: by CPU and by the wall's clock."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Times what is inside, whether it raises or not."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall[name] = max(self.wall.get(name, 0.0), time.perf_counter() - wall)
            self.cpu[name] = max(self.cpu.get(name, 0.0), time.process_time() - cpu)

    def check(self) -> None:
        """No look took too long; CPU time is checked in full campaigns alone, as it grows with the load."""
        assert not FULL or max(self.cpu.values()) < LONGEST, self.cpu
        assert max(self.wall.values()) < HANGING, self.wall

    def longest(self) -> str:
        """The longest of all, and which."""
        name = max(self.wall, key=lambda each: self.wall[each])
        return f"{self.wall[name]:.3f} s ({name}), {max(self.cpu.values()):.3f} s of CPU"
