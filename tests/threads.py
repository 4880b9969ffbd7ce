"""Many calls at once, each in its own thread."""

import threading
from collections.abc import Callable, Iterable
from typing import Any


def in_threads(work: Callable[[Any], Any], values: Iterable[Any]) -> None:
    """Call `work` with every value, all calls at the same time, and wait for their ends."""
    threads = [threading.Thread(target=work, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
