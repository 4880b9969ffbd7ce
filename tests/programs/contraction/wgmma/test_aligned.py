"""Hopper's products of operands that tensor copies cannot read: copied first, right under every order of events."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.operators.products import matmul
from gensor_kernels.programs.contraction.rewrite import align
from gensor_tuner.verify.verify import verify
from tests.doubles.stored import store_kernels
from tests.programs.lattices import ALIGNED
from tests.programs.warpgroups import ARCH, small

made = partial(small, ALIGNED, vector_c=2)


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
