"""Products of every kind: stored kernels, gates and norms, groups, quantised weights, scales, and layouts of weights.

tests/public_cases draws calls of all of them.
"""

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.functions.grouped_matmul import GROUPED_MATMUL
from gensor_kernels.dispatch.functions.low_precision_matmul import (
    BLOCK_SCALED_MATMUL,
    QUANTISED_LINEAR,
    ElementTypes,
    Weights,
)
from gensor_kernels.dispatch.functions.vendor_call import library_call
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import block_scaled, quantised
from tests.campaign_size import sample
from tests.doubles.device import FakeDevice
from tests.doubles.stored import stock_classes
from tests.public_cases.drawing import dtype_of

# ---- stored kernels


ONE_CLASS = {"sm_87": {("float16", "float16", "ieee"): [("knn", True, "contraction_mma", True)]}}


def one_call():
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in [(80, 96), (96, 72)])
    return a, b, rng.standard_normal(72).astype(np.float16)


def test_corrupting_the_kernel_changes_the_result(tmp_path, monkeypatch, no_databases):
    a, b, bias = one_call()
    product = a.astype(float) @ b.astype(float)

    def alter(text):
        assert text.count("v[i] = v[i] + x[i]") == 1
        return text.replace("v[i] = v[i] + x[i]", "v[i] = v[i] - x[i]")

    def result(name, change):
        stored = stock_classes(tmp_path / name, ONE_CLASS, change)
        monkeypatch.setenv("GENSOR_DB", str(tmp_path / name))
        with gk.emulated("sm_87"):
            why = gk.explain(gk.matmul, a, b, bias=bias)
            assert why.tier == 3 and why.kernel in stored
            return gk.matmul(a, b, bias=bias).astype(float), why

    right, served = result("right.db", lambda text: text)
    np.testing.assert_allclose(right, product + bias, atol=0.05)
    wrong, other = result("altered.db", alter)
    assert other.program == served.program and other.kernel != served.kernel
    np.testing.assert_allclose(wrong, product - bias, atol=0.05)


def test_code_of_an_untrusted_database_is_regenerated(tmp_path, monkeypatch, no_databases):
    """A file of another user is data: its Programs are used, its sources are not."""
    a, b, bias = one_call()
    path = tmp_path / "site.db"
    stock_classes(path, ONE_CLASS, lambda text: "#error from the file\n" + text)
    path.chmod(0o666)
    monkeypatch.setenv("GENSOR_SITE_DB", str(path))
    with gk.emulated("sm_87"):
        why = gk.explain(gk.matmul, a, b, bias=bias)
        found = gk.matmul(a, b, bias=bias)
    assert why.tier == 3 and "stored kernels" in why.reason
    np.testing.assert_allclose(found.astype(float), a.astype(float) @ b.astype(float) + bias, atol=0.05)


def test_out_of_another_byte_order_that_cannot_be_written():
    out = np.zeros((3, 3), ">f8")
    out.flags.writeable = False
    with gk.emulated("sm_87"), pytest.raises(ValueError, match="read-only"):
        gk.matmul(np.ones((3, 3)), np.ones((3, 3)), out)


def test_contexts_nest():
    with gk.emulated("h200"):
        with gk.emulated("sm_75"):
            assert current_runtime().device.arch is lookup("sm_75")
        assert current_runtime().device.arch.part == "h200"


# ---- groups


def reference(x, w, ends):
    """Per-group NumPy in float64; rows after the last end are zeros."""
    out, begin = np.zeros((x.shape[0], w.shape[2])), 0
    for group, end in enumerate(ends):
        out[begin:end] = x[begin:end].astype(np.float64) @ w[group].astype(np.float64)
        begin = end
    return out


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
    kind = dtype_of(dtype)
    wide = np.dtype(np.int32) if dtype == "int8" else kind
    x = rng.integers(-4, 5, (k, 32)).astype(kind).T
    w, bias = (rng.integers(-4, 5, shape).astype(each) for shape, each in (((7, k, n), kind), ((n,), wide)))
    added, out = rng.integers(-4, 5, (n, 32)).astype(wide).T, np.zeros((n, 32), wide).T
    with gk.emulated(arch):
        more = {"out": out} | ({"dtype": wide} if dtype == "int8" else {})
        gk.grouped_matmul(x, w, sizes=sizes, epilogue=[("bias", bias), ("add", added)], **more)
        why = gk.explain(gk.grouped_matmul, x, w, np.cumsum(sizes))
    wanted = reference(x, w, np.cumsum(sizes)) + bias.astype(np.float64) + added.astype(np.float64)
    np.testing.assert_array_equal(out.astype(np.float64), wanted.astype(wide).astype(np.float64))
    assert why.family.startswith("contraction")


def test_invalid_offsets_on_the_device_read_no_other_memory():
    """As on a GPU, where offsets are not checked before the launch."""
    x, w = np.ones((20, 8), np.float32), np.ones((3, 8, 4), np.float32)
    for ends in ([-5, 40, 3], [30, 10, 20], [2**31 - 1, -(2**31), 7]):
        with gk.emulated("sm_87"):
            found = current_runtime().serve(GROUPED_MATMUL, (x, w, np.array(ends, np.int32)), None)
        assert found.shape == (20, 4)


# ---- quantised weights


@pytest.mark.parametrize(
    ("k", "count", "group", "size"),
    [(96, 2, None, 48), (192, 2, None, 96), (96, 3, None, 32), (96, 2, 64, 64), (100, 4, 32, 32), (10, 2, None, 5)],
)
def test_the_size_of_a_group_follows_by_exact_division_or_is_given(k, count, group, size):
    x, w = np.ones((1, k), np.float16), np.ones((1, k), np.int8)
    scales = np.array([[1, 10, 3, 5][:count]], np.float16)
    wanted = sum(int(scales[0, place // size]) for place in range(k))
    parameters = Weights.of(x, w, scales, None, group)
    assert QUANTISED_LINEAR.library(FakeDevice(), (x, w, scales, None), parameters, None) == wanted
    with gk.emulated("sm_87"):
        if size in quantised.GROUPS:
            assert gk.linear(x, w, scales=scales, group=group) == wanted
        else:
            with pytest.raises(gk.UnsupportedError, match="groups"):
                gk.linear(x, w, scales=scales, group=group)


# ---- weights in another layout


rng = np.random.default_rng(5)


def weights(k, n, dtype="float16"):
    return rng.integers(-9, 9, (k, n)).astype(dtype)


@pytest.mark.parametrize(("dtype", "axis", "rows"), [("float16", -2, 8), ("int8", 0, 1)])
def test_misaligned_rows_are_transposed_in_memory(dtype, axis, rows, emulated):
    w = weights(4096, 4097, dtype)
    packed = gk.prepack(w, axis=axis, rows=rows)
    assert packed is not w and packed.shape == w.shape and packed.dtype == w.dtype
    assert packed.strides == (w.itemsize, 4096 * w.itemsize)
    assert np.array_equal(packed, w)
    x = rng.standard_normal((rows, 4096)).astype("float16") if dtype == "float16" else weights(rows, 4096, dtype)
    before, after = (gk.explain(gk.matmul, x, each, dtype={"int8": "int32"}.get(dtype)) for each in (w, packed))
    assert after.predicted_us * 1.05 < before.predicted_us


def test_the_axis_of_the_sum_decides(emulated):
    w = weights(4097, 4096, "int8")
    assert gk.prepack(w) is w
    turned = np.ascontiguousarray(w.T)
    packed = gk.prepack(turned, axis=-1)
    assert packed.shape == (4096, 4097) and packed.strides == (1, 4096)
    assert np.array_equal(packed, turned)


def test_the_array_itself_if_nothing_is_gained(emulated):
    shapes = {"float16": (4096, 4096), "float64": (4096, 4097), "complex64": (2048, 2048), "int64": (64, 33)}
    arrays = [weights(*shape, dtype) for dtype, shape in shapes.items()]
    for w in (*arrays, weights(4096, 1), weights(0, 4097)):
        assert gk.prepack(w) is w


# ---- 8-bit floats with scales


E4M3 = ml_dtypes.float8_e4m3fn


def numbers(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(E4M3)


def scales(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.25, 1.75, shape).astype(np.float32)


def operands(m, n, k):
    """(a, b, scale_a, scale_b) as layers have them: weights (n, k), transposed."""
    blocks = block_scaled.blocks_of
    return (
        *(numbers((m, k)), numbers((n, k), 1).T),
        *(scales(m, blocks(k)), scales(blocks(n), blocks(k), seed=1).T),
    )


def test_the_vendors_call_of_a_workload_is_the_same():
    workload = block_scaled.workload(9, 150, 272, out="float32")
    a, b, d, e = operands(9, 150, 272)
    declared = {"a": a, "b": b.T, "d": d, "e": e.T, "c": np.empty((9, 150), np.float32)}
    found = library_call(FakeDevice(), workload, declared, ())()
    types = ElementTypes(None, None, None)
    np.testing.assert_array_equal(found, BLOCK_SCALED_MATMUL.library(FakeDevice(), (a, b, d, e), types, "ieee"))


@pytest.mark.parametrize("arch", ["sm_89", "sm_90", "sm_100", "sm_120"])
def test_which_arrays_are_copied(arch):
    a, b, d, e = operands(12, 32, 256)
    rows = a.reshape(3, 4, 256), b, d.reshape(3, 4, 2), e
    gaps = numbers((4, 6, 256))[:, :4]  # whose rows do not follow each other evenly
    bytes_ = np.zeros(12 * 256 + 64, np.uint8)
    start = -bytes_.ctypes.data % 16 + 1
    moved = bytes_[start : start + 12 * 256].view(E4M3).reshape(12, 256)
    moved[...] = a
    with gk.emulated(arch):
        plain = gk.scaled_matmul(a, b, d, e)
        assert not gk.explain(gk.scaled_matmul, *rows).staged
        np.testing.assert_array_equal(gk.scaled_matmul(*rows), plain.reshape(3, 4, 32))
        backwards = gk.scaled_matmul(a, b, d, e, out=np.zeros((12, 32), np.float32)[::-1])
        np.testing.assert_array_equal(backwards, plain)
        for call in (
            (np.asfortranarray(a), b, d, e),
            (moved, b, d, e),
            (a[::-1], b, d[::-1], e),
            (a, np.ascontiguousarray(b), d, e),
            (a, b, d.astype(np.float64), e),
        ):
            assert gk.explain(gk.scaled_matmul, *call).staged == "operands are copied"
            flipped = plain[::-1] if call[0].strides[0] < 0 else plain
            np.testing.assert_array_equal(gk.scaled_matmul(*call), flipped)
        scale = scales(4, 4, 2)
        assert gk.explain(gk.scaled_matmul, gaps, b, scale, e).staged == "operands are copied"
        flat = gk.scaled_matmul(gaps.reshape(16, 256), b, scale.reshape(16, 2), e)
        np.testing.assert_array_equal(gk.scaled_matmul(gaps, b, scale, e), flat.reshape(4, 4, 32))
        row = gk.scaled_matmul(a[0], b, d[0], e)
        assert row.shape == (32,)
        np.testing.assert_array_equal(row, plain[0])
