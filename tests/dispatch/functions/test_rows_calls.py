"""Row operators on arrays of any strides, on the emulator, against NumPy, SciPy and PyTorch."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.rows.layout import K_DIGITS
from gensor_kernels.operators.rows.reductions import OPERATORS as REDUCTIONS
from gensor_kernels.operators.rows.views import default_output
from gensor_kernels.operators.types.dtypes import decode, encode, round_to
from tests.dispatch.rows_harness import ROWS, Call

MAPS = ("softmax", "log_softmax", "layernorm", "rmsnorm")
RTOL = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-5, "float64": 1e-12}


def stored(dtype: str, values: np.ndarray) -> np.ndarray:
    return encode(dtype, values)


def wanted(name: str, x: np.ndarray, axes: tuple[int, ...], value: float) -> np.ndarray:
    """The float64 reference over any axes: kept axes in their order, or all axes for a map."""
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    moved = x.transpose([*rest, *axes])
    flat = moved.reshape(*(x.shape[axis] for axis in rest), -1)
    found = operator(name).row(flat, value)
    if name not in MAPS:
        return found
    return found.reshape(moved.shape).transpose(np.argsort([*rest, *axes]))


def check(call: Call, want: np.ndarray, which: int = 0) -> None:
    got, _ = call.run(which=which)
    if call.out.startswith("int"):
        assert np.array_equal(got, want)
        return
    want = round_to(call.out, want)
    scale = np.abs(want[np.isfinite(want)]).max(initial=1e-30)
    assert np.allclose(got, want, rtol=RTOL[call.out], atol=RTOL[call.out] * scale, equal_nan=True)


@st.composite
def arrays(draw):
    """An array of up to four axes, transposed, stepped or reversed, and the axes to reduce."""
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.sampled_from([1, 2, 3, 5, 8, 16, 33])) for _ in range(rank))
    if math.prod(shape) > 20_000:
        shape = tuple(min(extent, 8) for extent in shape)
    order = draw(st.permutations(range(rank)))
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in range(rank)]
    axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), max_size=rank))))
    return shape, tuple(order), steps, axes, draw(st.integers(0, 2**32 - 1))


def lay_out(dtype: str, shape, order, steps, seed) -> np.ndarray:
    """Random values of ``shape`` in storage type, in memory as ``order`` and ``steps`` say."""
    rng = np.random.default_rng(seed)
    base = np.zeros([shape[axis] * abs(steps[axis]) for axis in order], encode(dtype, np.zeros(1)).dtype)
    cut = base[tuple(slice(None, None, steps[axis]) for axis in order)]
    x = cut.transpose(np.argsort(order))
    integer = dtype.startswith("int")
    values = rng.integers(-100, 100, shape) if integer else rng.standard_normal(shape)
    x[...] = encode(dtype, values.astype(np.float64))
    return x


@example("reduce_sum", "float16", ((2, 2, 2, 2), (0, 2, 1, 3), [1, 1, -1, -1], (0, 1, 2, 3), 0), 0, False)
@settings(max_examples=60)
@given(
    name=st.sampled_from([*REDUCTIONS, *MAPS]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32", "float64", "int8", "int32"]),
    array=arrays(),
    which=st.integers(0, 7),
    strided=st.booleans(),
)
def test_any_strides_and_axes(name, dtype, array, which, strided):
    shape, order, steps, axes, seed = array
    given_operator = operator(name)
    if not axes and (name in MAPS or name in ("argmax", "argmin")):
        axes = (0,)
    x = lay_out(dtype, shape, order, steps, seed)
    out = default_output(given_operator.operation, dtype)
    value = 1e-5 if name.endswith("norm") and name != "l2_norm" else 0.0
    call = Call(name, x, axes, dtype, out, value=value, c_strided=strided)
    try:
        call.plan()
    except UnsupportedError:
        # Only integers without such an operation, maps over axes that lie apart, and more of these than k has digits.
        apart = list(order) != sorted(order) or set(steps) != {1}
        assert dtype.startswith("int") or (name in MAPS and len(axes) > 1) or (len(axes) > K_DIGITS and apart)
        return
    check(call, wanted(name, decode(dtype, x), axes, value), which)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "float64"])
def test_layernorm_with_weights_and_bias_is_torch(dtype):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    x, weight, bias = (stored(dtype, rng.standard_normal(shape)) for shape in ((3, 5, 96), (96,), (96,)))
    steps = [("mul", weight, 1.0), ("bias", bias, 1.0)]
    call = Call("layernorm", x, (2,), dtype, dtype, steps, value=1e-5)
    tensors = [torch.from_numpy(decode(dtype, each)) for each in (x, weight, bias)]
    want = torch.nn.functional.layer_norm(tensors[0], (96,), tensors[1], tensors[2], 1e-5).numpy()
    for which in range(4):
        check(call, want, which)


def test_an_epilogue_operand_breaks_axes_apart():
    rng = np.random.default_rng(6)
    x, row = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 7, 40), (7,)))
    call = Call("reduce_sum", x, (2,), "float32", "float32", [("bias", row, 1.0), ("relu", None, 1.0)])
    plan = call.plan()
    assert (plan.workload.size["batch"], plan.workload.size["m"]) == (6, 7)
    check(call, np.maximum(x.astype(np.float64).sum(axis=2) + row, 0.0))
    for shape, axes in (((6, 7, 40), (0,)), ((3, 2, 40), (0, 1))):
        x = rng.standard_normal(shape).astype(np.float32)
        last = rng.standard_normal(40).astype(np.float32)
        call = Call("reduce_mean", x, axes, "float32", "float32", [("mul", last, 1.0)])
        check(call, x.astype(np.float64).mean(axis=axes) * last)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_elementwise_is_its_epilogue(dtype):
    rng = np.random.default_rng(7)
    x = stored(dtype, rng.standard_normal((4, 6, 50))).transpose(1, 0, 2)
    row = stored(dtype, rng.standard_normal(50))
    call = Call("elementwise", x, (), dtype, dtype, [("add", row, 1.0), ("relu", None, 1.0)])
    for which in range(3):
        check(call, np.maximum(decode(dtype, x) + decode(dtype, row), 0.0), which)


SPECIAL = np.array(
    [
        [1.0, 2.0, np.nan, 4.0, np.nan, 0.0, -1.0, 2.0],
        [np.inf, 1.0, 2.0, np.inf, -np.inf, 0.0, 1.0, 1.0],
        [-np.inf] * 8,
        [-np.inf, 1.0, 1.0, 3.0, 3.0, -np.inf, 0.0, 2.0],
        [5.0] * 8,
        [0.0, -0.0, 0.0, -0.0, 0.0, -0.0, 0.0, -0.0],
    ]
)


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min", "argmax", "argmin", "reduce_sum", "l2_norm"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("columns", [False, True])
def test_nan_infinity_and_ties_are_numpys(name, dtype, columns):
    numpy = {
        "reduce_max": np.max, "reduce_min": np.min, "argmax": np.argmax, "argmin": np.argmin, "reduce_sum": np.sum,
        "l2_norm": lambda v, axis: np.sqrt((v * v).sum(axis=axis)),
    }[name]  # fmt: skip
    x = stored(dtype, SPECIAL.T.copy() if columns else SPECIAL)
    axis = 0 if columns else 1
    out = "int64" if name.startswith("arg") else dtype
    call = Call(name, x, (axis,), dtype, out)
    with np.errstate(all="ignore"):
        want = numpy(decode(dtype, x), axis=axis)
    want = want if out == "int64" else round_to(dtype, want)
    for which in (0, 3, 4):
        got, _ = call.run(which=which)
        assert np.array_equal(got, want, equal_nan=True), which


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponentials_of_infinities_are_torchs(name, dtype):
    torch = pytest.importorskip("torch")
    x = SPECIAL.astype(dtype)
    want = getattr(torch, name)(torch.from_numpy(x), 1).numpy()
    call = Call(name, x, (1,), dtype, dtype)
    for which in (0, 1, 3, 4):
        got, _ = call.run(which=which)
        assert np.array_equal(np.isnan(got), np.isnan(want)), which
        assert np.allclose(got, want, rtol=1e-5, equal_nan=True), which


def test_a_million_ones_and_a_little_more_do_not_lose():
    x = np.full((1, 1_000_000), 1.0009765625, np.float32)
    call = Call("reduce_sum", x, (1,), "float32", "float32")
    for which in (0, 3):
        assert abs(call.run(which=which)[0][0] / 1_000_976.5625 - 1) < 2e-6


def test_a_split_is_deterministic_and_takes_every_part():
    x = np.random.default_rng(8).standard_normal((3, 5000)).astype(np.float32)
    call = Call("reduce_var", x, (1,), "float32", "float32", ddof=1)
    splits = [p for p in ROWS.starters(call.plan().workload, lookup("sm_87")) if p["split_k"] > 1]
    assert splits
    first, counters = call.run(splits[0])
    assert counters.branches["split_reduce"] and np.allclose(first, x.astype(np.float64).var(axis=1, ddof=1))
    assert np.array_equal(first, call.run(splits[0], which=7)[0])


def test_integers_are_exact():
    rng = np.random.default_rng(9)
    x = rng.integers(-(2**31), 2**31, (4, 1000)).astype(np.int32)
    assert np.array_equal(Call("reduce_sum", x, (1,), "int32", "int64").run()[0], x.astype(np.int64).sum(axis=1))
    assert np.array_equal(Call("reduce_min", x, (0,), "int32", "int32").run()[0], x.min(axis=0))
