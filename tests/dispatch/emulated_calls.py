"""Calls of matmul drawn by hypothesis: sizes, memory layouts, batches, dtypes, epilogues, NaN and infinities."""

import math
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from gensor_kernels.operators.types.epilogue import OPERATIONS
from tests.doubles.kernels import aligned

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {"bfloat16": BFLOAT16}
#: (dtype of the operands, of the result, precision); the result's is asked for where it differs.
KINDS = [
    ("float64", "float64", None),
    ("float32", "float32", None),
    ("float32", "float32", "tf32"),
    ("float16", "float16", None),
    ("bfloat16", "bfloat16", None),
    ("int8", "int32", None),
]
RARE_KINDS = [("float16", "float32", None), ("int8", "int8", None), ("int8", "float32", None)]
OLD_KINDS = [("float16", "float16", None), ("int8", "int32", None)]
FORMS = ("C", "F", "stepped", "negative", "zero", "misaligned")
ACTIVATIONS = ("relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
INTEGER_STEPS = ("scale", "bias", "add", "mul", "relu", "relu6", "mask")
MOST_PRODUCTS = 2**22


def dtype_of(name):
    return DTYPES.get(name) or np.dtype(name)


@dataclass
class Call:
    """One call: arguments for matmul, the float64 steps they stand for, and what it is an instance of."""

    arch: str
    kind: tuple
    a: np.ndarray
    b: np.ndarray
    keywords: dict
    steps: list  # (name, operand or None, scalar)
    traits: set = field(default_factory=set)


def laid_out(values, form):
    """An array equal to `values` whose memory is laid out as `form` says."""
    rows, columns = values.shape[-2:]
    lead, dtype = values.shape[:-2], values.dtype
    if form == "F":
        return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
    if form == "stepped":
        array = np.zeros((*lead, rows, 2 * columns), dtype)[..., ::2]
    elif form == "negative":
        array = np.zeros((*lead, rows, columns), dtype)[..., ::-1, :]
    elif form == "zero":
        return np.broadcast_to(values[..., :1, :], values.shape)
    elif form == "misaligned":
        flat = np.zeros(math.prod(lead) * rows * (columns + 1) + 17, dtype)
        start = (-flat.ctypes.data // dtype.itemsize) % (16 // dtype.itemsize) + 1
        whole = flat[start : start + math.prod(lead) * rows * (columns + 1)]
        array = whole.reshape(*lead, rows, columns + 1)[..., :columns]
    else:
        array = aligned((*lead, rows, columns), dtype)
    array[...] = values
    return array


def values(rng, shape, dtype, odd=0):
    """Normal numbers, or the whole range of int8; `odd` of them NaN or infinite."""
    if dtype == np.int8:
        return rng.integers(-128, 128, shape).astype(dtype)
    array = rng.standard_normal(shape).astype(dtype)
    if odd and array.size:
        array.reshape(-1)[rng.integers(0, array.size, odd)] = rng.choice([np.nan, np.inf, -np.inf], odd)
    return array


def pick(rng, choices):
    """One of `choices`: uniformly, which hypothesis's own draws are not, so that every class is met."""
    return choices[int(rng.integers(len(choices)))]


def extents(rng, sizes):
    """(m, n, k, batch axes) around drawn `sizes`: as drawn, multiples of 16, block edges; sometimes a long k."""
    style = pick(rng, ["drawn", "wide", "wide", "wide", "edge"])
    if style == "wide":
        sizes = [-(-size // 16) * 16 for size in sizes]
    if style == "edge":
        sizes = [pick(rng, [15, 17, 31, 33, 63, 65, 127, 129]) for _ in sizes]
    m, n, k = (pick(rng, [0] * zeros + [1] * 3 + [size] * 45) for size, zeros in zip(sizes, (1, 1, 3), strict=True))
    if rng.integers(6) == 0:
        m, n, k = min(m, 96), min(n, 96), k * pick(rng, [8, 13])
    lead = pick(rng, [(), (), (), (), (2,), (3,), (2, 3), (1, 2)])
    products = math.prod(lead) * m * n * max(k, 1)
    shrink = max(1, math.ceil(products / MOST_PRODUCTS))
    return max(m // shrink, min(m, 1)), n, k, lead


def epilogue(rng, shape, result):
    """(keywords of matmul, the steps they stand for).

    Integer results get steps that are exact in integers: a float that is rounded where it wraps around has no
    neighbourhood to be compared in.
    """
    exact = result in ("int8", "int32")
    scalars = (-2.0, 3.0) if exact else (0.5, -2.0, 3.0, 0.125)
    names = INTEGER_STEPS if exact else sorted(OPERATIONS)
    operands = ["int8", "int32"] if exact else [result, "float32", "int8"]

    def operand(name):
        ones = [1 if rng.integers(4) == 0 else extent for extent in shape]
        cut = ones[len(ones) - 1 if name == "bias" and ones else int(rng.integers(len(ones) + 1)) :]
        dtype = dtype_of(pick(rng, operands))
        if name == "mask":
            return rng.integers(0, 2, cut).astype(pick(rng, [np.dtype(bool), dtype]))
        return (rng.integers(-100, 100, cut) if dtype.kind == "i" else rng.standard_normal(cut)).astype(dtype)

    style = pick(rng, ["none", "keywords", "list", "list"])
    if style == "none":
        return {}, []
    if style == "list":
        steps = [
            (name, operand(name) if op.takes_operand else None, pick(rng, scalars) if op.takes_scalar else 0.0)
            for name, op in ((name, OPERATIONS[name]) for name in (pick(rng, names) for _ in range(rng.integers(1, 5))))
        ]
        return {"epilogue": [listed(*step) for step in steps]}, steps
    keywords, steps = {}, []
    if rng.integers(2):
        keywords["alpha"] = pick(rng, scalars)
        steps.append(("scale", None, keywords["alpha"]))
    for name in ("bias", "add"):
        if rng.integers(2):
            keywords[name] = operand(name)
            steps.append((name, keywords[name], 0.0))
    if rng.integers(2):
        keywords["activation"] = pick(rng, ("relu", "relu6") if exact else ACTIVATIONS)
        steps.append((keywords["activation"], None, 0.0))
    return keywords, steps


def listed(name, operand, scalar):
    """A step as an entry of `epilogue=`."""
    item = (name, *([] if operand is None else [operand]), *([scalar] if OPERATIONS[name].takes_scalar else []))
    return item if len(item) > 1 else name


@st.composite
def calls(draw):
    """A Call."""
    sizes = [draw(st.integers(2, 300)) for _ in "mnk"]
    rng = np.random.default_rng([draw(st.integers(0, 2**64 - 1)), *sizes])
    m, n, k, lead = extents(rng, sizes)
    arch = pick(rng, ["sm_87"] * 9 + ["sm_75"])
    kind = inputs, result, precision = pick(rng, KINDS * 3 + RARE_KINDS if arch == "sm_87" else OLD_KINDS)
    odd = pick(rng, [0, 0, 0, 0, 3]) if inputs != "int8" else 0
    forms = [pick(rng, FORMS) for _ in "abc"] if rng.integers(2) else ["C"] * 3
    shared = pick(rng, [None, None, "a", "b"]) if lead else None
    a = laid_out(values(rng, ((*lead, m, k) if shared != "a" else (m, k)), dtype_of(inputs), odd), forms[0])
    b = laid_out(values(rng, ((*lead, k, n) if shared != "b" else (k, n)), dtype_of(inputs), odd), forms[1])
    if m and a.ndim == 2 and rng.integers(12) == 0:
        a = a[0]
    shape = np.matmul(np.empty(a.shape, bool), np.empty(b.shape, bool)).shape
    keywords, steps = epilogue(rng, shape, result)
    if precision:
        keywords["precision"] = precision
    if len(shape) >= 2 and rng.integers(2):
        keywords["out"] = laid_out(np.zeros(shape, dtype_of(result)), forms[2] if forms[2] != "zero" else "C")
    if inputs != result and ("out" not in keywords or inputs == "int8"):
        keywords["dtype"] = result
    call = Call(arch, kind, a, b, keywords, steps)
    call.traits |= {f"a {forms[0]}", f"b {forms[1]}", *(f"step {name}" for name, *_ in steps), arch}
    call.traits |= {f"out {forms[2]}"} if "out" in keywords else {"out new"}
    conditions = {
        "nan or infinity": odd,
        "size one": 1 in (m, n, k),
        "batch": lead,
        "shared operand": shared,
        "vector": a.ndim == 1,
        "k zero": k == 0 and 0 not in shape,
    }
    call.traits |= {name for name, holds in conditions.items() if holds}
    return call
