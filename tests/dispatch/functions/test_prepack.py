"""prepack: weights transposed in memory where that is predicted to be faster, the same array otherwise."""

import numpy as np
import pytest

from gensor_kernels import explain, matmul, prepack

rng = np.random.default_rng(5)


def weights(k, n, dtype="float16"):
    return rng.integers(-9, 9, (k, n)).astype(dtype)


@pytest.mark.parametrize(("dtype", "axis", "rows"), [("float16", -2, 8), ("int8", 0, 1)])
def test_misaligned_rows_are_transposed_in_memory(dtype, axis, rows, emulated):
    w = weights(4096, 4097, dtype)
    packed = prepack(w, axis=axis, rows=rows)
    assert packed is not w and packed.shape == w.shape and packed.dtype == w.dtype
    assert packed.strides == (w.itemsize, 4096 * w.itemsize)
    assert np.array_equal(packed, w)
    x = rng.standard_normal((rows, 4096)).astype("float16") if dtype == "float16" else weights(rows, 4096, dtype)
    before, after = (explain(matmul, x, each, dtype={"int8": "int32"}.get(dtype)) for each in (w, packed))
    assert after.predicted_us * 1.05 < before.predicted_us


def test_the_axis_of_the_sum_decides(emulated):
    w = weights(4097, 4096, "int8")
    assert prepack(w) is w
    turned = np.ascontiguousarray(w.T)
    packed = prepack(turned, axis=-1)
    assert packed.shape == (4096, 4097) and packed.strides == (1, 4096)
    assert np.array_equal(packed, turned)


def test_the_array_itself_if_nothing_is_gained(emulated):
    shapes = {"float16": (4096, 4096), "float64": (4096, 4097), "complex64": (2048, 2048), "int64": (64, 33)}
    arrays = [weights(*shape, dtype) for dtype, shape in shapes.items()]
    for w in (*arrays, weights(4096, 1), weights(0, 4097)):
        assert prepack(w) is w


def test_arguments_that_do_not_fit(emulated):
    square = np.ones((3, 4), "float32")
    for error, words, call in (
        (TypeError, "numpy array", lambda: prepack([[1.0]])),
        (ValueError, "last two", lambda: prepack(np.ones(3, "float32"))),
        (ValueError, "last two", lambda: prepack(np.ones((2, 3, 4), "float32"), axis=0)),
        (ValueError, "rows", lambda: prepack(square, rows=0)),
        (TypeError, "rows", lambda: prepack(square, rows=1.5)),
    ):
        with pytest.raises(error, match=words):
            call()
