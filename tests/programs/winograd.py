"""Workloads of the winograd family that tests share, and the small Programs its mutants are tried on."""

from functools import lru_cache

import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace

from .window import padded

WINOGRAD = FAMILIES["winograd"]


def convolution(side: int, c: int, k: int, n: int = 2, **more) -> Workload:
    """A square 3 x 3 convolution under math "winograd"."""
    return conv.workload(
        **{"n": n, "h": side, "w": side, "c": c, "k_out": k, "r": 3, "s": 3, "math": "winograd"} | more
    )


SERVED = [
    ("sm_87", convolution(28, 64, 64, layout="nchw", epilogue="bias_relu", **padded())),
    ("sm_90", convolution(15, 33, 50, layout="nchw", **padded(2))),
    ("sm_90", convolution(28, 64, 64, epilogue="bias_add_relu", **padded())),
    ("sm_75", convolution(14, 67, 45, **padded())),
    ("sm_87", convolution(56, 32, 128, weights="rsck")),
    ("sm_89", convolution(14, 64, 64, layout="nchw", out="float16", **padded())),
]
IDS = [f"{i}-{each.layouts['x']}-{each.layouts['w']}-{arch}" for i, (arch, each) in enumerate(SERVED)]
every_winograd = pytest.mark.parametrize("index", range(len(SERVED)), ids=IDS)


@lru_cache
def space(index: int) -> FamilySpace:
    """The lattice of a served workload."""
    arch, workload = SERVED[index]
    return FamilySpace(WINOGRAD, workload, lookup(arch))


def _mutated(**values: int) -> dict[str, int]:
    base = {"block_m": 16, "block_n": 32, "block_k": 8, "split_k": 1, "raster": 1, "stages": 2, "prepared": 0}
    base |= {"thread_m": 4, "thread_n": 4, "held": 1}
    return base | {"epilogue_fixed": 0, "min_blocks": 0, "vector_c": 4} | values


#: Program by name: both layouts, pairs that threads share evenly and not, idle threads at the end, prepared filters,
#: splits, both widths.
MUTATED = {
    "channels first": (convolution(15, 33, 50, layout="nchw"), _mutated(block_m=8, thread_m=2)),
    "channels last": (convolution(15, 33, 50), _mutated(thread_n=8, held=2, stages=1, thread_m=2)),
    "filters last, split": (convolution(15, 33, 48, weights="rsck"), _mutated(split_k=3, raster=2, prepared=1)),
    "pairs, split": (convolution(14, 32, 32, layout="nchw"), _mutated(split_k=2, vector_c=8, block_k=4)),
    "compiled epilogue": (
        convolution(14, 32, 32, layout="nchw", epilogue="bias_relu_scale"),
        _mutated(epilogue_fixed=1, vector_c=8, stages=1),
    ),
}
