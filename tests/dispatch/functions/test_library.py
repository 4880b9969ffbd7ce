"""The library contract: a Function has the array library compute what it means, against NumPy, SciPy and PyTorch in
float64. Every Function that `vendor_call.FUNCTIONS` names has calls here."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.calls.conv_parameters import Parameters as Window
from gensor_kernels.dispatch.functions import attention, gated, rows, vendor_call, window
from gensor_kernels.dispatch.functions.attention_sequences import SEQUENCES
from gensor_kernels.dispatch.functions.block_scaled import SCALED_PRODUCT
from gensor_kernels.dispatch.functions.convolution import CONVOLUTION
from gensor_kernels.dispatch.functions.grouped import RAGGED
from gensor_kernels.dispatch.functions.mixed_input import Stored
from gensor_kernels.dispatch.functions.normed import NORMED, Norm
from gensor_kernels.dispatch.functions.prologue_convolution import PREPARED_CONVOLUTION, PreparedImage
from gensor_kernels.dispatch.functions.prologue_matmul import PREPARED, Prepared
from gensor_kernels.dispatch.functions.quantised import QUANTISED_LINEAR, checked
from gensor_kernels.operators import MODULES, operator
from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.products.gated import GATES
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, decode, encode
from gensor_kernels.operators.windows import conv, conv_prologue, depthwise, depthwise_prologue
from tests.doubles.device import FakeDevice
from tests.programs.attention_cases import exact_sequences, operands
from tests.programs.workloads.window import padded

from . import test_convolution, test_grouped, test_quantised

if find_spec("torch"):  # the calls of these modules are compared with PyTorch
    import torch

    from . import test_gated, test_normed, test_pooling, test_prologue

SEEDS = st.integers(0, 99)
EXACT, WIDE = (0.0, 0.0), (1e-11, 1e-11)


class Call(NamedTuple):
    """One call of a Function, what it has to give, and how far off that may be: relative, absolute."""

    function: Any
    inputs: tuple[Any, ...]
    parameters: Any
    wanted: np.ndarray
    error: tuple[float, float] = (1e-9, 1e-9)
    steps: tuple[Operation, ...] = ()
    declared: Callable[[Any], Any] = lambda value: value


def float64(arrays):
    """Arrays among these in float64, and everything else as it is."""
    return [x.astype(np.float64) if isinstance(x, np.ndarray) else x for x in arrays]


@st.composite
def attention_calls(draw):
    heads, group = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    batch, queries = draw(st.integers(1, 2)), draw(st.sampled_from([1, 5, 17]))
    keys, head = draw(st.sampled_from([17, 33, 70])), draw(st.sampled_from([16, 32, 64]))
    rng = np.random.default_rng(draw(SEEDS))
    q, k, v = (
        rng.standard_normal(shape).astype(np.float16).astype(np.float64)
        for shape in ((batch, heads * group, queries, head), *[(batch, heads, keys, head)] * 2)
    )
    kind = draw(st.sampled_from(["none", "none", "bool", "added"]))
    mask, added = None, np.zeros((batch, heads * group, queries, keys))
    if kind == "bool":
        mask = rng.integers(0, 2, (queries, keys)).astype(bool)
        mask[:, 0] = True
        added = np.where(mask, added, -np.inf)
    if kind == "added":
        mask = rng.standard_normal((batch, 1, queries, keys)).astype(np.float32)
        added = added + mask
    causal = False if kind == "bool" else draw(st.sampled_from([False, True, "upper_left"]))
    if causal:
        last = np.arange(queries)[:, None] + (0 if causal == "upper_left" else keys - queries)
        added = np.where(np.arange(keys) > last, -np.inf, added)
    scale = draw(st.sampled_from([None, 0.5]))
    left, right = draw(st.sampled_from([(None, None), (4, 2), (0, None), (None, 9)]))
    own = np.arange(queries)[:, None] + (0 if causal == "upper_left" else keys - queries)
    for side, outside in ((left, own - np.arange(keys)), (right, np.arange(keys) - own)):
        added = added if side is None else np.where(outside > side, -np.inf, added)
    theirs = [torch.from_numpy(x) for x in (q, k.repeat(group, 1), v.repeat(group, 1), added)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*theirs[:3], attn_mask=theirs[3], scale=scale).numpy()
    return [Call(attention.ATTENTION, (q, k, v, mask), attention.Parameters(causal, scale, (left, right)), wanted)]


@st.composite
def sequences_calls(draw):
    """Sequences one after the other, in pages, or both; a last sequence and pages that end early."""
    kind = draw(st.sampled_from([{}, {"page_size": 4, "table": 6}, {"page_size": 4, "table": 6, "ragged": False}]))
    more = {"causal": draw(st.sampled_from([False, True, "upper_left"])), "softcap": draw(st.booleans())}
    more |= {"window": draw(st.sampled_from([(None, None), (4, 1), (0, None), (None, 2)]))}
    heads = draw(st.sampled_from([(1, 1), (2, 1), (4, 2)]))
    sizes = kind | more | dict(zip(("heads", "kv_heads"), heads, strict=True))
    w = sequences.workload(draw(st.integers(1, 5)), 17 if kind.get("ragged", True) else 3, 24, head=8, **sizes)
    arrays = operands(w, draw(SEEDS))
    called = SEQUENCES.called(w, arrays)
    q, k, v, *ends = called.inputs
    inputs = (*float64([q, k, v]), *ends)
    return [Call(SEQUENCES, inputs, called.parameters, exact_sequences(w, arrays), (1e-9, 1e-9))]


@st.composite
def convolution_calls(draw):
    small = st.integers(1, 3)
    transposed, g = draw(st.booleans()), draw(st.sampled_from([1, 1, 2]))
    c, k, r, s = g * draw(st.integers(1, 5)), g * draw(st.integers(1, 5)), draw(small), draw(small)
    sizes = {f"{what}_{side}": draw(st.integers(1, 2)) for what in ("stride", "dilation") for side in "hw"}
    sizes |= {name: draw(st.integers(0, 2)) for name in ("pad_top", "pad_left")}
    sizes |= {"pad_bottom": sizes["pad_top"], "pad_right": sizes["pad_left"], "groups": g}
    if transposed:
        sizes |= {"output_padding_h": 0, "output_padding_w": 0}
    h, w = draw(st.integers(5, 9)), draw(st.integers(5, 9))
    dtype = draw(st.sampled_from(["float32", "float64", "float16", "int8"]))
    rng = np.random.default_rng(draw(SEEDS))
    shape = (c, k // g, r, s) if transposed else (k, c // g, r, s)
    x, weights = rng.integers(-4, 5, (draw(small), c, h, w)), rng.integers(-4, 5, shape)
    x, weights, p = x.astype(dtype), weights.astype(dtype), Window("NCHW", tuple(sizes.items()), transposed)
    wanted = test_convolution.reference(x, weights, p)
    if draw(st.booleans()):
        x, weights, wanted = (each.transpose(0, 2, 3, 1) for each in (x, weights, wanted))
        p = Window("NHWC", p.sizes, transposed)
    return [Call(CONVOLUTION, (x, weights), p, wanted, EXACT)]


@st.composite
def pooling_calls(draw):
    (x, taps, more), counted = draw(test_pooling.calls()), draw(st.booleans())
    (stride_h, stride_w), (top, left) = more["stride"], more["padding"]
    sizes = dict(r=taps[0], s=taps[1], stride_h=stride_h, stride_w=stride_w, ceil_mode=int(more["ceil_mode"]))
    sizes |= dict(pad_top=top, pad_bottom=top, pad_left=left, pad_right=left)
    calls = []
    for op, own in (("max_pool2d", {}), ("avg_pool2d", {"count_include_pad": counted})):
        wanted = getattr(torch.nn.functional, op)(test_pooling.tensor(x), taps, **more, **own).numpy()
        given = sizes | {name: int(value) for name, value in own.items()}
        p = window.PoolParameters(op, "NCHW", tuple(given.items()))
        calls.append(Call(window.POOLING, (x,), p, wanted, (1e-5, 1e-6)))
    return calls


FOLDS = {f"reduce_{name}": getattr(np, name) for name in ("sum", "mean", "max", "min", "prod", "var")}
FOLDS |= {
    "logsumexp": lambda x, axes, keepdims: import_module("scipy.special").logsumexp(x, axes, keepdims=keepdims),
    "softmax": lambda x, axes, keepdims: import_module("scipy.special").softmax(x, axes),
    "l2_norm": lambda x, axes, keepdims: np.sqrt((x * x).sum(axes, keepdims=keepdims)),
}


@st.composite
def rows_calls(draw):
    """Small arrays of up to four axes, some of one element, contiguous, stepped, reversed or transposed in memory."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 33]), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(SEEDS))
    x = rng.standard_normal(shape).astype(draw(st.sampled_from(["float32", "float64", "float16"]))).astype(np.float64)
    how = draw(st.sampled_from(["plain", "plain", "transposed", "stepped", "reversed"]))
    if how == "transposed":
        x = np.ascontiguousarray(x.T).T
    if how == "stepped":
        x = np.repeat(x, 2, axis=-1)[..., ::2]
    x = np.ascontiguousarray(x[::-1])[::-1] if how == "reversed" else x
    axes = tuple(sorted(draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))
    keepdims = draw(st.booleans())
    calls = [
        Call(rows.COMPOSED, (x,), rows.Parameters(name, axes, keepdims), fold(x, axes, keepdims=keepdims), WIDE)
        for name, fold in FOLDS.items()
    ]
    flat = np.moveaxis(x, axes, range(-len(axes), 0)).reshape(*np.delete(x.shape, axes), -1).argmin(-1)
    smallest = np.expand_dims(flat, axes) if keepdims else flat
    return [*calls, Call(rows.COMPOSED, (x,), rows.Parameters("argmin", axes, keepdims), smallest, EXACT)]


@st.composite
def gated_calls(draw):
    x, w, bias, name = float64(draw(test_gated.calls()))
    wanted = test_gated.reference(name, x, w, bias)
    return [Call(gated.FUNCTIONS[GATES[name]], (x, w.T, bias), None, wanted)]


@st.composite
def grouped_calls(draw):
    *arrays, sizes = draw(test_grouped.calls())
    x, w = float64(arrays)
    ends = np.cumsum(sizes)
    return [Call(RAGGED, (x, w, ends), None, test_grouped.reference(x, w, ends), (1e-7, 1e-12))]


@st.composite
def normed_calls(draw):
    a, b, bias, residual, weight = float64(draw(test_normed.calls()))
    norm = draw(st.sampled_from(sorted(test_normed.FUNCTIONS)))
    steps = (Operation("bias", bias), Operation("add", residual), Operation("mul", weight))
    wanted = test_normed.reference(norm, a, b, bias, residual, weight, 0.01)
    return [Call(NORMED, (a, b), Norm(norm, 0.01, 2), wanted, steps=steps)]


@st.composite
def prepared_calls(draw):
    x, b, _, steps = draw(test_prologue.calls())
    vectors = [value for _, value in steps if value is not None]
    wanted = test_prologue.theirs(x, steps, x.dtype) @ b.astype(np.float64)
    p = Prepared(tuple(name for name, _ in steps), 1.0)
    return [Call(PREPARED, (x, b, *vectors), p, wanted, (1e-2, 2e-2))]


@st.composite
def quantised_calls(draw):
    x, w, scales, zeros, group, _ = draw(test_quantised.layers())
    scales = scales.astype(np.float16)
    wanted = x.astype(np.float64) @ test_quantised.dequantised(w, scales, zeros, group).T
    p = checked(x, w, scales, zeros, None)
    return [Call(QUANTISED_LINEAR, (x, w, scales, zeros), p, wanted, (1e-4, 1e-3))]


@st.composite
def scaled_calls(draw):
    rng = np.random.default_rng(draw(SEEDS))
    lead, n, k = draw(st.sampled_from([(3,), (2, 3), ()])), draw(st.sampled_from([8, 130])), draw(st.integers(1, 300))
    names = [draw(st.sampled_from(EIGHT_BIT_FLOATS)) for _ in "ab"]
    shapes = (*lead, k), (k, n)
    a, b = (encode(name, rng.standard_normal(shape)) for name, shape in zip(names, shapes, strict=True))
    d, e = rng.uniform(0.5, 1.5, (*lead, -(-k // 128))), rng.uniform(0.5, 1.5, (-(-k // 128), -(-n // 128)))
    x = decode(names[0], a) * np.repeat(d, 128, -1)[..., :k]
    y = decode(names[1], b) * np.repeat(np.repeat(e, 128, 0), 128, 1)[:k, :n]
    p = Stored(*names, np.dtype(np.float32))
    return [Call(SCALED_PRODUCT, (a, b, d.astype(np.float32), e.astype(np.float32)), p, x @ y, (1e-4, 1e-3))]


@st.composite
def prepared_convolution_calls(draw):
    rng = np.random.default_rng(draw(SEEDS))
    x, w, beta = (rng.standard_normal(shape) for shape in ((1, 4, 5, 5), (3, 4, 3, 3), 4))
    sizes = {f"{what}_{side}": 1 for what in ("stride", "dilation") for side in "hw"} | {"groups": 1} | padded()
    p = PreparedImage(Prepared(("bias", "sigmoid"), 1.0), Window("NCHW", tuple(sizes.items())))
    steps = [("bias", beta[:, None, None]), ("sigmoid", None)]
    prepared = torch.from_numpy(test_prologue.theirs(x, steps, "float64"))
    wanted = torch.nn.functional.conv2d(prepared, torch.from_numpy(w), padding=1).numpy()
    return [Call(PREPARED_CONVOLUTION, (x, w, beta), p, wanted, (1e-7, 1e-12))]


def of_workload(workload):
    """Calls of a Workload's arrays, against the reference of its operator."""
    declared = operator(workload.operator)
    module, name = vendor_call.FUNCTIONS[MODULES[workload.operator]]
    function = getattr(import_module(f"{vendor_call.__package__}.{module}"), name)

    @st.composite
    def calls(draw):
        rng = np.random.default_rng(draw(SEEDS))
        arrays = {each.name: rng.standard_normal(each.shape) for each in declared.operands(workload)}
        made = function.called(workload, arrays)
        del arrays["y"]
        wanted = declared.expect(workload, arrays).values
        return [Call(function, made.inputs, made.parameters, wanted, (1e-12, 1e-12), declared=made.declared)]

    return calls


STEPS = ("mul", "bias", "sigmoid")
SPATIAL = depthwise.workload(n=2, h=9, w=8, c=6, r=3, s=3, pad_top=1, pad_left=2, dtype="float64")
UP = conv.workload(n=1, h=5, w=4, c=6, k_out=4, r=3, s=3, stride_h=2, dtype="float64", transposed=True)
PREPARED_UP, PREPARED_SPATIAL = conv_prologue.workload(STEPS, UP), depthwise_prologue.workload(STEPS, SPATIAL)
#: Function -> the package that its reference needs, how many examples, and the strategies that draw calls of it
CALLS = {
    "attention.ATTENTION": ("torch", 40, attention_calls),
    "attention_sequences.SEQUENCES": ("numpy", 40, sequences_calls),
    "convolution.CONVOLUTION": ("numpy", 40, convolution_calls),
    "window.POOLING": ("torch", 40, pooling_calls),
    "window.DEPTHWISE": ("numpy", 3, of_workload(SPATIAL)),
    "rows.COMPOSED": ("scipy", 60, rows_calls),
    "gated.FUNCTIONS": ("torch", 25, gated_calls),
    "grouped.RAGGED": ("numpy", 25, grouped_calls),
    "normed.NORMED": ("torch", 20, normed_calls),
    "prologue_matmul.PREPARED": ("torch", 20, prepared_calls),
    "prologue_convolution.PREPARED_CONVOLUTION": ("torch", 3, prepared_convolution_calls, of_workload(PREPARED_UP)),
    "prologue_convolution.PREPARED_DEPTHWISE": ("numpy", 3, of_workload(PREPARED_SPATIAL)),
    "block_scaled.SCALED_PRODUCT": ("numpy", 20, scaled_calls),
    "quantised.QUANTISED_LINEAR": ("numpy", 20, quantised_calls),
}


@pytest.mark.parametrize("name", sorted({".".join(each) for each in vendor_call.FUNCTIONS.values()}))
def test_the_library_computes_the_same(name):
    needed, examples, *strategies = CALLS[name]
    pytest.importorskip(needed)
    module, _, place = name.partition(".")
    function = getattr(import_module(f"{vendor_call.__package__}.{module}"), place)

    def compare(calls):
        for call in calls:
            assert call.function in function.values() if isinstance(function, dict) else call.function is function
            found = call.function.library(FakeDevice(), call.inputs, call.parameters, None)
            if call.steps:
                found = call.function.finished(FakeDevice(), found, call.steps, call.parameters, found.dtype)
            found = call.declared(found)
            relative, absolute = call.error
            assert np.shape(found) == call.wanted.shape
            np.testing.assert_allclose(np.asarray(found, np.float64), call.wanted, rtol=relative, atol=absolute)

    for calls in strategies:
        settings(max_examples=examples, deadline=None)(given(calls())(compare))()
