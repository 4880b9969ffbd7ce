"""A process of the determinism campaign: `python -m tests.campaigns.deterministic_calls ORDER COUNT`.

It makes COUNT calls of the kinds of lives/calls.py in a random order, and prints for each kind the digests of the
bits it gave, and by which kernels. The databases are those of the environment. It exits with the number of its races.
"""

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from gensor_database import layers
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import load
from tests.doubles.device import FakeDevice
from tests.doubles.exact import Exact, Turns
from tests.doubles.kernels import ARCH

from .lives.calls import KINDS, Kind


def with_binaries(shelf):
    """The Library with something in the place of cubins: without them nothing races."""
    for kernel in shelf.contents.kernels.values():
        kernel.__dict__["code"] = replace(kernel.read(), cubin=b"\x7fELF")
    return shelf


def main(order, count):
    layers.PRETUNED = Path(os.devnull) / "nothing ships here"  # of kernels that share their code, one is known by it
    shelf = with_binaries(load.library(ARCH))
    exact = Exact(shelf.contents.kernels, salted=True)
    runtime = Runtime(FakeDevice(execute=exact, clock=Turns()), shelf)
    kinds = [Kind(index) for index in range(KINDS)]
    found = [{"bits": set(), "kernels": set()} for _ in kinds]
    for index in np.random.default_rng(order).permutation(np.arange(count) % KINDS):
        exact.last = "library"
        result = kinds[index].call(runtime)
        found[index]["bits"].add(hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest())
        found[index]["kernels"].add(exact.last)
    print(json.dumps([{name: sorted(values) for name, values in each.items()} for each in found]))
    return len(runtime.device.races)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
