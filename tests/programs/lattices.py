"""Spaces the tests of programs share: every kind of operand, copy and layout."""

from functools import lru_cache

import numpy as np
import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.gated import workload as gated
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.products.quantised import workload as quantised
from gensor_kernels.operators.windows.conv import workload as convolution
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace

MMA, SIMT, WGMMA, ALIGNED = (FAMILIES[f"contraction_{name}"] for name in ("mma", "simt", "wgmma", "aligned"))

#: family, arch, workload: every kind of operand, copy and layout
SERVED = [
    (MMA, "sm_80", workload(1000, 1004, 520)),
    (MMA, "sm_87", workload(1, 4096, 4096, trans_b=True)),
    (MMA, "sm_75", workload(512, 512, 512, trans_a=True)),
    (MMA, "sm_90", workload(77, 33, 1001, dtype="bfloat16", epilogue=("bias", "gelu"))),
    (MMA, "sm_89", workload(640, 640, 640, dtype="float32", math="tf32", trans_b=True)),
    (MMA, "sm_120", workload(256, 256, 256, dtype="int8", out="int8", trans_a=True)),
    (MMA, "sm_75", workload(256, 256, 256, dtype="int8")),
    (SIMT, "sm_89", workload(4096, 4096, 4096, dtype="float32")),
    (SIMT, "sm_75", workload(129, 127, 65, dtype="float32", trans_a=True, trans_b=True)),
    (SIMT, "sm_80", workload(300, 300, 300, dtype="float64", epilogue=("relu",))),
    (SIMT, "sm_90", workload(100, 200, 304, dtype="float16", trans_b=True)),
    (SIMT, "sm_86", workload(100, 200, 304, dtype="int8")),
    (SIMT, "sm_87", workload(256, 256, 256, dtype="complex64", math="3m", trans_a=True, conjugate="a")),
    (SIMT, "sm_80", workload(129, 127, 65, dtype="complex128", epilogue=("scale", "add"))),
    (MMA, "sm_87", workload(64, 2112, 7168, dtype="float8_e4m3fn", trans_b=True)),
    (MMA, "sm_90", workload(100, 256, 1024, dtype="bfloat16", dtype_b="int8")),
    (MMA, "sm_87", quantised(16, 512, 1024, bits=4, group=64, zeros=True)),
    (WGMMA, "sm_90", workload(1000, 1008, 520, trans_b=True)),
    (WGMMA, "sm_90", workload(512, 512, 512, dtype="float8_e4m3fn", dtype_b="float8_e5m2", trans_b=True)),
    (WGMMA, "sm_90", workload(512, 512, 512, dtype="float32", math="tf32", trans_b=True)),
    (WGMMA, "sm_90", workload(512, 512, 512, dtype="int8", trans_b=True)),
    (WGMMA, "sm_90", workload(256, 4096, 4096, dtype="bfloat16", trans_a=True, out="float32", epilogue=("bias",))),
    (WGMMA, "sm_90", gated("swiglu", 512, 1376, 1024, trans_b=True, epilogue=("add",))),
    (WGMMA, "sm_90", convolution(n=8, h=28, w=28, c=72, k_out=96, r=3, s=3, stride_h=2, dtype="float16")),
    (MMA, "sm_90", workload(300, 300, 300, dtype="float64", trans_a=True, epilogue=("bias",))),
    (MMA, "sm_80", workload(300, 300, 300, dtype="complex128", trans_b=True, epilogue=("scale", "add"))),
    (MMA, "sm_90", workload(300, 300, 300, dtype="complex128", math="3m", trans_a=True, conjugate="a")),
]
IDS = [f"{family.name.removeprefix('contraction_')}-{arch}-{i}" for i, (family, arch, _) in enumerate(SERVED)]


@lru_cache
def space(index: int) -> FamilySpace:
    family, arch, problem = SERVED[index]
    return FamilySpace(family, problem, lookup(arch))


def random_legal(lattice: FamilySpace, count: int, seed: int = 0) -> np.ndarray:
    """Random legal complete points (count, d)."""
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    while sum(map(len, found)) < count:
        points = np.stack([rng.integers(0, extent, 20_000) for extent in lattice.extents], axis=1)
        points[:, 0] = 2
        found.append(points[lattice.legal(points)])
    return np.concatenate(found)[:count]


every_space = pytest.mark.parametrize("index", range(len(SERVED)), ids=IDS)
