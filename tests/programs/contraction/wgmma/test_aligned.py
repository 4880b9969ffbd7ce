"""Hopper's products of operands that tensor copies cannot read: copied first, right under every order of events."""

import struct
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.programs.contraction.rewrite import align
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.tensor_maps import TensorMap, described, key
from gensor_tuner.verify.verify import verify
from tests.doubles.stored import store_kernels
from tests.programs.lattices import ALIGNED, MMA, WGMMA, fastest

from .small import ARCH, is_right, small

made = partial(small, ALIGNED, vector_c=2)


@pytest.mark.parametrize(
    ("workload", "values"),
    [
        (matmul.workload(512, 511, 587), {"split_k": 2}),
        (matmul.workload(512, 512, 588, dtype="bfloat16", trans_a=True, trans_b=True), {"persistent": 1}),
        (matmul.workload(512, 516, 588, dtype="int8"), {"block_k": 128, "vector_c": 16}),
        (matmul.workload(512, 516, 588, dtype="float32", math="tf32", trans_a=True), {"block_k": 32, "vector_c": 16}),
        (
            matmul.workload(512, 516, 588, dtype="float8_e4m3fn", dtype_b="float8_e5m2"),
            {"block_k": 128, "vector_c": 16},
        ),
        (matmul.workload(512, 512, 528, dtype_b="int8", trans_b=True, epilogue=("mul",)), {"vector_c": 16}),
        (matmul.workload(512, 513, 531, dtype="bfloat16", dtype_b="float8_e4m3fn"), {"split_k": 2}),
        (matmul.workload(512, 512, 528, dtype="float8_e5m2", dtype_b="float16", trans_a=True), {"vector_c": 16}),
    ],
    ids=[
        "both, split",
        "one of two, walking",
        "int8 turned",
        "tf32 turned",
        "8-bit floats",
        *(f"widened {x}" for x in "abc"),
    ],
)
def test_products_match_float64(workload, values):
    is_right(made(workload, **values), workload)


@pytest.mark.parametrize(
    ("workload", "values"),
    [
        (matmul.workload(512, 512, 512, dtype="int8"), {"block_k": 128}),
        (matmul.workload(512, 512, 512, dtype="float32", math="tf32", trans_a=True), {"block_k": 32}),
    ],
    ids=["int8", "tf32"],
)
def test_turned_copies_store_whole_sectors_without_bank_conflicts(workload, values):
    """Tiles of 64 lines by 16 accesses cross shared memory."""
    each = made(workload, vector_c=16, **values)
    copy = each.family.launches(each.program, workload)[0]
    turned = sum(found.turned for found in align.copies(workload))
    assert copy.entry == "contraction_align" and copy.shared_bytes == 16384
    assert copy.grid == turned * (512 // 64) * (512 * align.extents(workload).bytes_a // 256)
    verdict = verify(each, workload, use_cache=False)
    assert verdict.outcome == "ok" and verdict.counters["bank_conflicts"] == 0


def test_what_is_copied_and_how():
    """Along the operand's own unit stride where products can be formed so, else along k."""

    def told(*sizes, **keywords):
        found = align.copies(matmul.workload(*sizes, **keywords))
        return {copy.operand: (copy.unit, copy.piece, copy.turned) for copy in found}

    assert told(512, 512, 512) == {}
    assert told(512, 512, 588) == {"a": ("k", 8, False)}
    assert told(512, 511, 587) == {"a": ("k", 2, False), "b": ("n", 2, False)}
    assert told(512, 512, 512, dtype="int8") == {"b": ("k", 1, True)}
    assert told(510, 512, 512, dtype="float32", math="tf32", trans_a=True, trans_b=True) == {"a": ("k", 4, True)}
    assert told(512, 511, 587, dtype="float32") == {}
    # What is narrower than the other operand is widened, however it lies.
    assert told(512, 512, 512, dtype_b="int8", trans_b=True) == {"b": ("k", 8, False)}
    assert told(512, 512, 513, dtype="float8_e5m2", dtype_b="bfloat16") == {"a": ("k", 1, False)}
    assert told(512, 512, 512, dtype="float32", dtype_b="int8") == {}


def test_families_share_the_workloads():
    """What tensor copies read is contraction_wgmma's, the rest of its types contraction_aligned's."""
    for sizes, dtype in (((512, 512, 512), "float16"), ((512, 512, 516), "float16"), ((8, 8, 8), "int8")):
        workload = matmul.workload(*sizes, dtype=dtype)
        assert [family.serves(workload, ARCH) for family in (WGMMA, ALIGNED)].count(None) == 1
    assert "no warpgroup products" in ALIGNED.serves(matmul.workload(512, 512, 516), lookup("sm_89"))
    assert ALIGNED.serves(matmul.workload(512, 512, 516, dtype="float32"), ARCH)


def test_large_products_repay_the_copies_and_small_ones_do_not():
    for problem in (matmul.workload(4096, 4096, 4091), matmul.workload(4096, 4096, 4096, dtype_b="int8")):
        assert fastest(ALIGNED, problem, ARCH) < 0.8 * fastest(MMA, problem, ARCH)
    problem = matmul.workload(256, 256, 251)
    assert fastest(ALIGNED, problem, ARCH) > fastest(MMA, problem, ARCH)


def test_maps_of_copies_lie_in_the_workspace():
    """Lines of whole 16 bytes, an entry only along axes of the batch that are not broadcast."""
    strides = {"a": Strides((70_000, 0, 7_000), 99, 1), "b": Strides((1, 1, 1), 64, 1), "c": Strides((1, 1, 1), 64, 1)}
    geometry = Geometry(sizes=(70, 64, 99), batch=(2, 3, 5), **strides)
    packed = bytearray(
        params.pack(geometry, params.tiling({"m": 64, "n": 64, "k": 64, "split": 1, "raster": 1}, geometry))
    )
    struct.pack_into("<Q", packed, params.WORKSPACE_OFFSET, 1 << 20)
    wanted = TensorMap("a", False, 2, 64, copied_at=4096)
    found, pitch = described(packed, wanted), 104 * 2
    assert found.address == (1 << 20) + 4096 and found.extents == (99, 70, 5, 1, 2)
    assert found.strides == (pitch, 70 * pitch, 16, 5 * 70 * pitch)
    parts = described(packed, TensorMap("a", False, 2, 64, copied_at=4096, parts=3))  # each of whole rows of 128 bytes
    assert parts.extents == (3 * 128, 70, 5, 1, 2) and parts.strides == (768, 70 * 768, 16, 5 * 70 * 768)
    there = TensorMap("a", False, 2, 64)
    before = key(packed, wanted), key(packed, there)
    struct.pack_into("<Q", packed, params.WORKSPACE_OFFSET, 1 << 21)
    assert key(packed, wanted) != before[0] and key(packed, there) == before[1]


def test_calls_reach_a_stored_kernel_however_operands_lie(no_databases):
    """Steps of two, rows back to front, a batch that is broadcast, elements off whole accesses."""
    workload = matmul.workload(512, 511, 587, batch=2)
    strided = replace(workload, layout=(*workload.layout[:1], ("b", "s"), ("c", "n")))
    store_kernels(no_databases, ARCH, *((made(each).program, each) for each in (workload, strided)))
    rng = np.random.default_rng(2)
    a = rng.standard_normal((3, 1, 70, 33)).astype(np.float16)
    b = rng.standard_normal((4, 33, 90)).astype(np.float16)
    with gensor_kernels.emulated("sm_90"):
        for left, right in ((a, b[:, :, :45]), (a[:, :, ::-1], b[..., ::2]), (a[0, 0], b[0, :, 1:])):
            assert gensor_kernels.explain(gensor_kernels.matmul, left, right).family == ALIGNED.name
            wanted = left.astype(float) @ right.astype(float)
            np.testing.assert_allclose(gensor_kernels.matmul(left, right), wanted, rtol=2e-3, atol=0.02)
