"""Kernels for the machine: of the shipped databases with their own binaries, or with small cubins written here."""

from __future__ import annotations

import re

from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import SIZE
from gensor_kernels.families.core.tensor_maps import MAP_BYTES, MAPS_OFFSET

from . import elf

_KERNEL = re.compile(r"^\w*KERNEL\((\w+)", re.MULTILINE)


def capability(target: str) -> tuple[tuple[int, int], bool]:
    """Return (capability, whether only for it) of a compile target."""
    return divmod(int(target.removeprefix("sm_").rstrip("af")), 10), target.endswith("a")


def cubin(target: str, text: str, launches: tuple[Launch, ...] = ()) -> bytes:
    """Return a cubin that has the kernels of a family's source, with the arguments that its `launches` have."""
    entries = {name: elf.Entry(parameters=(SIZE,)) for name in _KERNEL.findall(text)}
    for each in launches:
        size = MAPS_OFFSET + len(each.maps) * MAP_BYTES if each.maps else SIZE
        entries[each.entry] = elf.Entry(parameters=(size,), most_threads=each.block, cluster=each.cluster)
    number, specific = capability(target)
    return elf.written(number, entries, specific)
