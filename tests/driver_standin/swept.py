"""Every stored kernel loaded and launched once, as JSON: `python -m tests.driver_standin.swept sm_90 ...`.

Params are random bytes: it is about their number, and the limits of the part. Nothing is executed.
"""

import json
import random
import sys

from tests.driver_standin.runtime import Runtime

Runtime().install()

from gensor_kernels.devices.dependent import started  # noqa: E402
from gensor_kernels.machine.arch import lookup  # noqa: E402
from gensor_kernels.programs.core.family import Launch  # noqa: E402
from gensor_kernels.programs.core.params import SIZE  # noqa: E402
from gensor_kernels.programs.core.tensor_maps import MAP_BYTES, MAPS_OFFSET  # noqa: E402
from tests.driver_standin.host_device import HostDevice  # noqa: E402
from tests.driver_standin.library import Calls  # noqa: E402
from tests.driver_standin.stored import Stored, stored  # noqa: E402

calls, rng = Calls(), random.Random(0)


def swept(arch: str) -> dict[str, object]:
    """Return how many kernels and launches a database has, and what is wrong with which."""
    device, kernels, launches, wrong = HostDevice(lookup(arch).part, calls), 0, 0, []
    for each in stored(arch):
        kernels, launches = kernels + 1, launches + len(each.launches)
        try:
            wrong += [f"{each.family} {each.code.digest[:12]}: {why}" for why in _wrong(device, each)]
        except device.refusals as error:
            wrong.append(f"{each.family} {each.code.digest[:12]}: {error}")
    return {"kernels": kernels, "launches": launches, "wrong": wrong}


def _wrong(device: HostDevice, kernel: Stored) -> list[str]:
    functions = device._modules.functions(kernel.code, kernel.launches)
    given = [_launch(device, *each) for each in zip(functions, kernel.launches, strict=True)]
    made = calls.launches()
    found = []
    for asked, launch, passed in zip(made, kernel.launches, given, strict=True):
        dependent = launch.dependent and "dependent_launch" in device.arch.features
        if bytes.fromhex(asked["passed"]) != passed:
            found.append(f"{launch.entry} takes {sum(asked['sizes'])} bytes, not {len(passed)}")
        if dependent != (asked.get("attributes") == [6, 1]):
            found.append(f"{launch.entry} was launched with attributes {asked.get('attributes')}")
    return found


def _launch(device: HostDevice, function: object, launch: Launch) -> bytes:
    size = MAPS_OFFSET + MAP_BYTES * len(launch.maps) if launch.maps else SIZE
    words, given = device.ready(rng.randbytes(size))
    call = started(function, launch, device.arch, device.stream)
    call((launch.blocks(device.arch.sms),), (launch.block,), given, launch.shared_bytes)
    return words.tobytes()


if __name__ == "__main__":
    print(json.dumps({arch: swept(arch) for arch in sys.argv[1:]}))
