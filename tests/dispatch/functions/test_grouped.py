"""Groups of different rows: kernels and public calls; tests/public_cases draws calls."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gensor_kernels
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.functions.grouped_matmul import GROUPED_MATMUL
from gensor_kernels.families.core.params import ragged_tiles
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import ragged
from gensor_kernels.operators.types.workload import View, contiguous
from tests.campaign_size import sample
from tests.families.verified import small_is_right

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def reference(x, w, ends):
    """Per-group NumPy in float64; rows after the last end are zeros."""
    out, begin = np.zeros((x.shape[0], w.shape[2])), 0
    for group, end in enumerate(ends):
        out[begin:end] = x[begin:end].astype(np.float64) @ w[group].astype(np.float64)
        begin = end
    return out


@given(st.lists(st.integers(0, 70), min_size=1, max_size=40), st.integers(0, 40), st.sampled_from([1, 16, 48]))
def test_the_tiles_suffice_for_any_sizes(sizes, rest, tile):
    rows = sum(sizes) + rest
    needed = sum(-(-size // tile) for size in (*sizes, rest))
    assert needed <= ragged_tiles(rows, len(sizes), tile) <= rows // tile + len(sizes) + 1


KERNELS = [
    ({"dtype": "bfloat16", "trans_b": True}, "contraction_mma", {"raster": 2}),
    ({"dtype": "int8", "epilogue": "bias_relu"}, "contraction_mma", {"epilogue_staged": 0, "epilogue_fixed": 1}),
    ({"dtype": "float64"}, "contraction_simt", {"stages": 1}),
    ({"dtype": "float16", "out": "float32"}, "contraction_simt", {"epilogue_staged": 1}),
    ({"dtype": "float16", "along_m": True}, "contraction_mma", {"copy": 0}),
    ({"dtype": "float32", "along_m": True}, "contraction_simt", {}),
]


def workload(groups, m, n, k, *, along_m=False, **more):
    """That of contiguous operands, or of an x with unit stride along m."""
    w = ragged.workload(groups, m, n, k, **more)
    if not along_m:
        return w
    b, c, d = (
        contiguous(shape, w.dtype[name]) for name, shape in (("b", (groups, k, n)), ("c", (m, n)), ("d", (groups,)))
    )
    return ragged.workload_from_operands(View((m, k), (1, m), w.dtype["a"]), b, c, d, epilogue=w.epilogue)


@pytest.mark.parametrize(("more", "family", "values"), sample(KERNELS, 2))
def test_kernels_pass_the_verifier(more, family, values):
    verdict = small_is_right(workload(8, 512, 96, 64, **more), family, values)
    assert verdict.branches["rest"] and verdict.branches["spare"]


STARTS = [
    (arch, dtype, n, k)
    for arch, n, k in (("sm_75", 24, 40), ("sm_87", 1, 8), ("sm_90", 24, 40), ("sm_90", 16, 1))
    for dtype in ("float16", "float32", "float64", "int8", "bfloat16")
    if (arch, dtype) != ("sm_75", "bfloat16")
]


@pytest.mark.parametrize(("arch", "dtype", "n", "k"), sample(STARTS, 4))
def test_groups_start_at_any_row_of_arrays_along_m(arch, dtype, n, k):
    """x, out, bias and add along m: the first row of a group has the alignment of an element."""
    rng, sizes = np.random.default_rng(6), [3, 0, 8, 1, 14, 5, 1]
    kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    wide = np.dtype(np.int32) if dtype == "int8" else kind
    x = rng.integers(-4, 5, (k, 32)).astype(kind).T
    w, bias = (rng.integers(-4, 5, shape).astype(each) for shape, each in (((7, k, n), kind), ((n,), wide)))
    added, out = rng.integers(-4, 5, (n, 32)).astype(wide).T, np.zeros((n, 32), wide).T
    with gensor_kernels.emulated(arch):
        more = {"out": out} | ({"dtype": wide} if dtype == "int8" else {})
        gensor_kernels.grouped_matmul(x, w, sizes=sizes, epilogue=[("bias", bias), ("add", added)], **more)
        why = gensor_kernels.explain(gensor_kernels.grouped_matmul, x, w, np.cumsum(sizes))
    wanted = reference(x, w, np.cumsum(sizes)) + bias.astype(np.float64) + added.astype(np.float64)
    np.testing.assert_array_equal(out.astype(np.float64), wanted.astype(wide).astype(np.float64))
    assert why.family.startswith("contraction")


def test_k_is_not_split():
    w, arch = ragged.workload(8, 64, 96, 8192, dtype="float16"), lookup("sm_90")
    for family in Space(w, arch).families:
        assert next(c for c in family.coordinates if c.name == "split_k").values == (1,)
        assert all(program["split_k"] == 1 for program in family.family.starters(w, arch))


def test_invalid_offsets_on_the_device_read_no_other_memory():
    """As on a GPU, where offsets are not checked before the launch."""
    x, w = np.ones((20, 8), np.float32), np.ones((3, 8, 4), np.float32)
    for ends in ([-5, 40, 3], [30, 10, 20], [2**31 - 1, -(2**31), 7]):
        with gensor_kernels.emulated("sm_87"):
            found = current_runtime().serve(GROUPED_MATMUL, (x, w, np.array(ends, np.int32)), None)
        assert found.shape == (20, 4)


REFUSED = [
    ({"offsets": np.array([3, 1], np.uint32)}, "ascend"),
    ({"sizes": [1, 2, 1]}, "sizes have as many integers"),
    ({}, "offsets or sizes, one of them"),
]


def test_arguments_that_do_not_fit():
    x, w = np.zeros((4, 8), np.float32), np.zeros((2, 8, 3), np.float32)
    with gensor_kernels.emulated("sm_87"):
        for keywords, words in REFUSED:
            with pytest.raises(ValueError, match=words):
                gensor_kernels.grouped_matmul(x, w, **keywords)
        with pytest.raises(ValueError, match="takes x"):
            gensor_kernels.grouped_matmul(x, w[:, :7], offsets=[1, 4])
