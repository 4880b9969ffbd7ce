"""Row operators: declarations, references and tolerances, against SciPy and PyTorch where these are independent."""

import numpy as np
import pytest

from gensor_kernels.operators import operator
from gensor_kernels.operators.rows.norms import VERIFIED_EPS
from gensor_kernels.operators.rows.reductions import OPERATORS as REDUCTIONS
from gensor_kernels.operators.rows.views import workload, workload_from_views
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import encode
from gensor_kernels.operators.types.workload import View, Workload, contiguous

MAPS = ("softmax", "log_softmax", "layernorm", "rmsnorm", "cumsum", "cumprod", "elementwise")
EVERY = (*REDUCTIONS, *MAPS)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", EVERY)
def test_the_declaration_says_what_the_reference_does(name):
    given = operator(name)
    shape = (2, 3, 4, 5) if name in MAPS else (2, 3, 2, 2, 3, 5)
    x = RNG.standard_normal(shape)
    x.flat[:4] = x.flat[4]  # ties
    sizes = {"ddof": 1} if name == "reduce_var" else {}
    declared = given.reference({"a": x}, sizes)
    rows = x if name in MAPS else x.reshape(2, 3, 2, -1)
    want = given.row(rows, float(sizes.get("ddof", given.value)))
    assert np.allclose(declared, want if name in MAPS else want.transpose(0, 2, 1), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", EVERY)
def test_work_follows_from_the_declaration(name):
    small, large = (workload(name, (4, n), () if name == "elementwise" else (1,), "float32") for n in (64, 128))
    assert large.flops() >= small.flops() * (1.9 if name != "elementwise" else 0)
    out = 4 * 64 if name in MAPS else 4
    assert small.bytes_moved() == 4 * (4 * 64) + out * (8 if name.startswith("arg") else 4)
    assert Workload.from_json(small.key()) == small
    assert set(small.size) == set(dict(operator(name).smallest))


@pytest.mark.parametrize(
    ("shape", "axes", "layout", "sizes"),
    [
        ((128, 512, 1024), (2,), "k", {"m": 65536, "k": 1024}),
        ((128, 4032, 11, 11), (2, 3), "k", {"m": 516096, "k": 121}),
        ((1, 1024, 1024), (1, 2), "k", {"m": 1, "k": 1048576}),
        ((1024, 64), (0,), "n", {"m": 1, "n": 64, "k": 1024}),
        ((8, 1024, 64), (-2,), "n", {"m": 8, "n": 64, "k": 1024}),
        ((8, 16, 32, 32), (0, 2, 3), "ijk", {"m": 16, "j": 8, "k": 1024}),
        ((8, 16, 4, 32), (0, 2), "ijn", {"m": 16, "n": 32, "j": 8, "k": 4}),
        ((3, 5, 7), (), "n", {"m": 1, "n": 105, "k": 1}),
    ],
)
def test_axes_merge(shape, axes, layout, sizes):
    found = workload("reduce_sum", shape, axes, "float32")
    assert found.layouts["a"] == layout
    assert {name: extent for name, extent in found.size.items() if name in sizes} == sizes
    assert np.prod(list(found.size.values())) == np.prod(shape)


def test_layouts_without_a_unit_stride_and_their_alignment():
    transposed = View((64, 96), (1, 64), "float16")
    out = contiguous((64,), "float16")
    assert workload_from_views("reduce_sum", transposed, out, (1,)).workload.layouts["a"] == "n"
    assert (
        workload_from_views("reduce_sum", transposed, contiguous((96,), "float16"), (0,)).workload.layouts["a"] == "k"
    )
    stepped = workload_from_views("reduce_sum", View((64, 96), (192, 2), "float16"), out, (1,)).workload
    assert (stepped.layouts["a"], stepped.align["a"]) == ("s", 2)
    odd = workload("reduce_sum", (64, 90), (1,), "float16")
    assert (odd.layouts["a"], odd.align["a"]) == ("k", 4)


def sequential(x: np.ndarray, kind: type) -> np.ndarray:
    """The running sum of the last axis, rounded to ``kind`` at every step."""
    total = np.zeros(x.shape[:-1], kind)
    for i in range(x.shape[-1]):
        total = (total + x[..., i].astype(kind)).astype(kind)
    return total.astype(np.float64)


@pytest.mark.parametrize("operation", ["reduce_sum", "reduce_mean", "l2_norm", "reduce_var", "softmax", "layernorm"])
def test_a_half_precision_accumulator_is_outside_the_tolerance(operation):
    k = 4096
    w = workload(operation, (8, k), (1,), "float16", out="float32")
    x = encode("float16", RNG.standard_normal((8, k))).astype(np.float64)
    shape = (1, 8, 1, k) if operation in MAPS else (1, 8, 1, 1, 1, k)
    expected = operator(operation).expect(w, {"a": encode("float16", x).reshape(shape)})

    @np.errstate(invalid="ignore", over="ignore")
    def short(kind: type) -> np.ndarray:
        total = {"reduce_sum": x, "reduce_mean": x, "l2_norm": x * x}.get(operation)
        if total is not None:
            found = sequential(total, kind)
            return {"reduce_mean": found / k, "l2_norm": np.sqrt(found)}.get(operation, found)
        if operation == "softmax":
            e = np.exp(x - x.max(axis=1, keepdims=True))
            return e / sequential(e, kind)[:, None]
        mean = sequential(x, kind)[:, None] / k
        var = sequential(np.square(x - mean), kind) / k
        return var if operation == "reduce_var" else (x - mean) / np.sqrt(var[:, None] + VERIFIED_EPS)

    place = (1, 8, 1, k) if operation in MAPS else (1, 1, 8)
    assert not tolerance_base.check(short(np.float16).reshape(place), expected).ok
    assert tolerance_base.check(short(np.float64).reshape(place), expected).ok


@pytest.mark.parametrize("structured", [False, True])
def test_serial_float32_sums_up_to_the_serial_limit_are_inside(structured):
    from gensor_kernels.operators.tolerance.rows import SERIAL

    x = RNG.standard_normal((64, SERIAL)) + 3 * structured
    x = x.astype(np.float32).astype(np.float64)
    w = workload("reduce_sum", x.shape, (1,), "float32")
    arrays = {"a": x.astype(np.float32).reshape(1, 64, 1, 1, 1, SERIAL)}
    expected = operator("reduce_sum").expect(w, arrays, structured=structured)
    assert tolerance_base.check(sequential(x, np.float32).reshape(1, 1, 64), expected).ok
