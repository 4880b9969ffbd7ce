"""Every stored kernel loaded and launched once, as JSON: `python -m tests.driver_standin.swept sm_90 ...`.

Params are random bytes: their number is checked, and the limits of the part. Nothing is executed.
"""

import json
import random
import sys
from collections.abc import Iterator

from tests.driver_standin.runtime import installed

runtime = installed()

from gensor_kernels.devices.driver import choose_launch  # noqa: E402
from gensor_kernels.machine.arch import lookup  # noqa: E402
from tests.driver_standin.host_device import HostDevice, size_of  # noqa: E402
from tests.driver_standin.stored import Stored, stored  # noqa: E402

rng = random.Random(0)


def sweep(arch: str) -> dict[str, object]:
    """Return how many kernels and launches a database has, and what is wrong with which."""
    device, kernels, launches, wrong = HostDevice(lookup(arch).part, runtime), 0, 0, []
    for each in stored(arch):
        kernels, launches = kernels + 1, launches + len(each.launches)
        try:
            wrong += [f"{each.family} {each.code.digest[:12]}: {why}" for why in _wrong(device, each)]
        except device.refusals as error:
            wrong.append(f"{each.family} {each.code.digest[:12]}: {error}")
    return {"kernels": kernels, "launches": launches, "wrong": wrong}


def _wrong(device: HostDevice, kernel: Stored) -> Iterator[str]:
    functions = device._modules.functions(kernel.code, kernel.launches)
    for function, wanted in zip(functions, kernel.launches, strict=True):
        words, given = device.ready(rng.randbytes(size_of(wanted)))
        call = choose_launch(function, wanted, device.arch, device.stream)
        call((wanted.blocks(device.arch.sms),), (wanted.block,), given, wanted.shared_bytes)
        (made,) = runtime.launches()
        if made.parameters != words.tobytes():
            yield f"{wanted.entry} takes {len(made.parameters)} bytes, not {size_of(wanted)}"
        if made.dependent != (wanted.dependent and "dependent_launch" in device.arch.features):
            yield f"{wanted.entry} was launched with other attributes: dependent is {made.dependent}"


if __name__ == "__main__":
    print(json.dumps({arch: sweep(arch) for arch in sys.argv[1:]}))
