"""Gated products by contraction_wgmma: both matrices' columns in one product, the gate in registers."""

import subprocess
from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import find_nvdisasm
from gensor_kernels.operators.products import gated
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.params import Tiling
from gensor_kernels.programs.core.tensor_maps import TensorMap, described
from gensor_kernels.programs.space import FamilySpace, Space
from gensor_tuner.strategies.request import Request, search
from tests.doubles.stored import store_kernels
from tests.programs.lattices import ALIGNED, WGMMA, random_legal

from .small import ARCH, is_right, small

made = partial(small, WGMMA, vector_c=16)


@pytest.mark.parametrize(
    ("workload", "values"),
    [
        (gated.workload("bias_swiglu", 256, 512, 256, trans_b=True, epilogue="add"), {"block_n": 32, "persistent": 1}),
        (
            gated.workload("geglu", 256, 512, 256, dtype="bfloat16", trans_a=True),
            {"cluster": 2, "block_n": 64, "epilogue_staged": 3, "persistent": 2, "consumers": 2},
        ),
        (gated.workload("reglu", 256, 512, 256, out="float32", batch=2), {"block_n": 128, "epilogue_staged": 0}),
        (
            gated.workload("swiglu", 256, 512, 256, dtype="float8_e4m3fn", out="float16", trans_b=True),
            {"block_k": 128, "block_n": 48},
        ),
        (
            gated.workload("geglu_tanh", 256, 512, 256, dtype="float32", math="tf32", trans_b=True),
            {"block_k": 32, "block_n": 16},
        ),
    ],
    ids=["bias, walking", "pairs, in turns, stored by copies", "n-contiguous", "8-bit floats", "tf32"],
)
def test_gates_match_float64(workload, values):
    is_right(made(workload, **values), workload)


def test_a_product_has_the_columns_of_both_matrices(tmp_path):
    """Two copies of B to a box, and products of twice as many columns as a tile of C has."""
    workload = gated.workload("swiglu", 256, 512, 256, trans_b=True)
    binary = compile_cubin(made(workload, block_n=96).source(), ARCH.target)
    assert binary.error is None and binary.entries[WGMMA.name].spill_stores == 0
    (tmp_path / "gate.cubin").write_bytes(binary.cubin)
    text = subprocess.run([find_nvdisasm(), tmp_path / "gate.cubin"], capture_output=True, text=True, check=True).stdout
    assert "HGMMA.64x192x16" in text and text.count("UTMALDG") == 3


def test_what_is_legal_fits_and_agrees_with_the_terms():
    workload = gated.workload("swiglu", 500, 1376, 1024, dtype="bfloat16", trans_b=True)
    lattice = FamilySpace(WGMMA, workload, ARCH)
    values = {c.name: c.values for c in lattice.coordinates}
    assert values["split_k"] == (1,) and values["cluster"] == (0, 2) and max(values["block_n"]) == 128
    for point in random_legal(lattice, 20, seed=1):
        program, terms = lattice.program(point), lattice.explain(point)
        (main,) = WGMMA.launches(program, workload)
        assert (main.grid, main.shared_bytes) == (terms["blocks"], terms["shared_bytes"])
        assert WGMMA.constants(program, workload)["BLOCK_N"] == 2 * program["block_n"]
        a, b, other, *_ = main.maps
        assert (a.operand, b.operand, other.operand) == ("a", "b", "b") and other.other and not b.other
        assert b.rows == other.rows == program["block_n"]


def test_the_other_matrix_has_a_map_of_its_own():
    workload = gated.workload("swiglu", 64, 128, 256)
    strides = {"a": (0, 256, 1), "b": (0, 256, 128, 1), "c": (0, 128, 1)}
    geometry = gated.OPERATORS["swiglu"].geometry(workload, strides)
    packed = params.pack(geometry, Tiling(1, 1, 1, 256, 1))
    gate, other = (described(packed, TensorMap("b", False, 2, 64, other=each)) for each in (False, True))
    assert other.address - gate.address == 128 * 2
    assert (other.extents, other.strides) == (gate.extents, gate.strides) and gate.extents[:2] == (128, 256)


def test_who_serves_them_and_who_is_chosen():
    large = gated.workload("swiglu", 1024, 14336, 4096, trans_b=True)
    assert "contraction_wgmma" in Space(large, ARCH).names and ALIGNED.serves(large, ARCH)
    assert search(Request(large, ARCH, 0, "full")).best[0][0].family == WGMMA.name


def test_calls_reach_a_stored_kernel(no_databases):
    """`linear` with the gate's rows above the other's, and `matmul` of halves side by side, rows of a view."""
    down, across = (gated.workload("swiglu", 256, 512, 256, trans_b=flag) for flag in (True, False))
    store_kernels(no_databases, ARCH, *((made(each).program, each) for each in (down, across)))
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((70, 72), (2 * 88, 72)))
    gate, other = (x.astype(float) @ half.astype(float).T for half in (w[:88], w[88:]))
    wanted = gate / (1 + np.exp(-gate)) * other
    with gensor_kernels.emulated("sm_90"):
        told = gensor_kernels.explain(gensor_kernels.linear, x, w, activation="swiglu")
        assert told.family == WGMMA.name
        found = gensor_kernels.linear(x, w, activation="swiglu")
        np.testing.assert_allclose(found, wanted, rtol=4e-3, atol=0.05)
        wide = np.ascontiguousarray(w.T)
        assert gensor_kernels.explain(gensor_kernels.matmul, x, wide, activation="swiglu").family == WGMMA.name
        np.testing.assert_allclose(gensor_kernels.matmul(x, wide, activation="swiglu"), wanted, rtol=4e-3, atol=0.05)
