"""Products and contractions, drawn: against NumPy in float64 and complex128, activations against ONNX."""

import functools
from typing import Any

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, array_dtype, decode, encode
from gensor_kernels.operators.types.epilogue import Step

from .counts import CASES
from .drawing import ARRAYS, FLOATS, FORMS, Cases, Draw
from .prologues import prologue
from .references import ACTIVATIONS, product_agrees, scaled_agrees, wide
from .serving import Served

pytestmark = pytest.mark.usefixtures("calls_recorded")

DTYPES = (*FLOATS, "int8", "complex64", "complex128")


def run(name: str, served: Served, case: Any, *more: str) -> None:
    cases = Cases(name, CASES[name])
    cases.run(lambda draw: case(draw, served))
    cases.require(*ARRAYS, *DTYPES, "nan", "inf", *more)


def activated(draw: Draw, dtype: str) -> tuple[str | None, list[Step]]:
    """An activation, where the dtype has them, and the steps it is."""
    name = draw.pick([None, None, *ACTIVATIONS]) if dtype in FLOATS else None
    draw.traits |= {"activation"} if name else set()
    return name, [Step(name)] if name else []


def matmul(draw: Draw, served: Served) -> None:
    dtype, lead = draw.pick(DTYPES), draw.pick([(), (), (2,), (3, 1), (0,)])
    m, n, k = draw.extent(), draw.extent(), draw.extent(draw.pick([40, 300]))
    a = draw.array((*lead, m, k), dtype)
    b = draw.array((*draw.pick([(), lead, (*lead[:-1], 1) if lead else ()]), k, n), dtype)
    if draw.often(0.1):
        a = draw.array((k,), dtype)
    shape = np.matmul(np.empty(a.shape, bool), np.empty(b.shape, bool)).shape
    keywords: dict[str, Any] = {}
    steps: list[Step] = []
    result = dtype
    if dtype == "int8" and draw.often(0.6):
        result = keywords["dtype"] = "int32"
    if dtype in FLOATS:
        if draw.often(0.3):
            keywords["alpha"] = draw.pick([0.5, -2.0])
            steps.append(Step("scale", None, keywords["alpha"]))
        for name in ("bias", "add"):
            if draw.often(0.3):
                over = shape[len(shape) - 1 if name == "bias" else int(draw.rng.integers(len(shape) + 1)) :]
                keywords[name] = draw.array(over, dtype, special=False)
                steps.append(Step(name, keywords[name]))
        keywords["activation"], last = activated(draw, dtype)
        steps += last
    if dtype == "float32" and draw.often(0.3):
        keywords["precision"] = "tf32"
        draw.traits.add("tf32")
    keywords["prologue"], before = prologue(draw, dtype, k)
    out = draw.out(shape, result)
    found = served.call(gk.matmul, a, b, out, nothing=not k, **keywords)
    assert out is None or found is out
    more = {"steps": steps, "math": keywords.get("precision", "ieee"), "prologue": before}
    product_agrees(found, np.matmul, a, b, k, **more)


def linear(draw: Draw, served: Served) -> None:
    dtype, m, n, k = draw.pick(DTYPES), draw.extent(), draw.extent(), draw.extent(90)
    x = draw.array((*draw.pick([(), (m,), (2, m)]), k), dtype)
    w = draw.array((n, k), dtype)
    if draw.often(0.1):
        w = gk.prepack(w, axis=-1, rows=m)
        draw.traits.add("prepacked")
    name, steps = activated(draw, dtype)
    bias = draw.array((n,), dtype, special=False) if dtype in FLOATS and draw.often(0.6) else None
    if bias is not None:
        steps.insert(0, Step("bias", bias))
    asked, before = prologue(draw, dtype, k) if isinstance(w, np.ndarray) else (None, [])
    found = served.call(gk.linear, x, w, bias, name, nothing=not k, prologue=asked)
    product_agrees(found, lambda a, b: a @ b.T, x, w, k, steps=steps, prologue=before)


def tensordot(draw: Draw, served: Served) -> None:
    dtype = draw.pick(DTYPES)
    left, inner, right = ([draw.extent(8) for _ in range(draw.pick([0, 1, 2]))] for _ in range(3))
    order = [int(each) for each in draw.rng.permutation(len(inner))]
    a, b = draw.array((*left, *inner), dtype), draw.array((*(inner[i] for i in order), *right), dtype)
    axes: Any = ([len(left) + i for i in order], list(range(len(inner))))
    if order == sorted(order) and draw.often(0.5):
        axes = len(inner)
    terms = int(np.prod(inner))
    asked, before = prologue(draw, dtype, a.shape[-1], share=0.1, curves=False) if a.ndim else (None, [])
    found = served.call(gk.tensordot, a, b, axes, nothing=not terms, prologue=asked)
    product_agrees(found, lambda x, y: np.tensordot(x, y, axes), a, b, terms, prologue=before)


def pair(name: str, draw: Draw, served: Served) -> None:
    """dot, inner, vdot and outer: operands of as many axes as each takes."""
    dtype, m, n, k = draw.pick(DTYPES), draw.extent(), draw.extent(), draw.extent(90)
    a, b = {
        "dot": lambda: draw.pick(
            [((m, k), (k, n)), ((k,), (k,)), ((m, k), (k,)), ((2, m, k), (3, k, n)), ((), (m, n))]
        ),
        "inner": lambda: draw.pick([((m, k), (n, k)), ((k,), (k,)), ((2, m, k), (n, k)), ((m, n), ())]),
        "vdot": lambda: draw.pick([((k,), (k,)), ((m, k), (m, k)), ((m, k), (k * m,))]),
        "outer": lambda: draw.pick([((m,), (n,)), ((2, m), (n,)), ((m,), (n, 3))]),
    }[name]()
    x, y = draw.array(a, dtype), draw.array(b, dtype)
    function, numpy = getattr(gk, name), getattr(np, name)
    terms = 1 if name == "outer" or not a or not b else x.size if name == "vdot" else a[-1]
    keywords: dict[str, Any] = {}
    shape = np.asarray(numpy(np.zeros(a), np.zeros(b))).shape
    if name in ("dot", "outer"):
        keywords["out"] = draw.out(shape, dtype)
    found = served.call(function, x, y, nothing=not terms, **keywords)
    assert keywords.get("out") is None or found is keywords["out"]
    conjugate = (0,) if name == "vdot" else ()
    product_agrees(found, lambda u, v: np.asarray(numpy(u, v)), x, y, terms, conjugate=conjugate)


def grouped_matmul(draw: Draw, served: Served) -> None:
    dtype, n, k = draw.pick((*FLOATS, "int8")), draw.extent(zero=0), draw.extent(90, zero=0)
    rows = [draw.pick([0, 1, 3, 17, 33]) for _ in range(draw.pick([1, 2, 4]))]
    ends = np.cumsum(rows).astype(draw.pick([np.int32, np.int64]))
    x, w = draw.array((sum(rows), k), dtype), draw.array((len(rows), k, n), dtype)
    out = draw.out((sum(rows), n), dtype)
    name, steps = activated(draw, dtype)
    found = served.call(gk.grouped_matmul, x, w, ends, activation=name, out=out)
    assert out is None or found is out

    def f(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        parts = [part @ own for part, own in zip(np.split(a, ends[:-1]), b, strict=True)]
        return np.concatenate(parts)

    product_agrees(found, f, x, w, k, steps=steps)


def eight_bits(draw: Draw, shape: tuple[int, ...]) -> tuple[np.ndarray, str, np.ndarray]:
    """Numbers of an 8-bit float type, in bytes or as the type itself; its name, and the numbers in float64."""
    name = draw.pick(EIGHT_BIT_FLOATS)
    stored = encode(name, draw.values(shape, "float32"))
    stored = stored.view(array_dtype(name)) if draw.often(0.5) else stored
    found = draw.laid_out(stored, draw.pick([*FORMS, "contiguous"]))
    sizes = {"zero-size": 0 in shape, "size one": 1 in shape}
    draw.traits |= {name, stored.dtype.name, *(trait for trait, there in sizes.items() if there)}
    return found, name, decode(name, found)


def scaled_matmul(draw: Draw, served: Served) -> None:
    k, n = draw.pick([16, 112, 128, 144, 256, 400]), draw.pick([draw.extent(), 129, 200])
    k = 0 if draw.often(0.02) else k
    lead = draw.pick([(), (draw.extent(),), (2, draw.extent())])
    (a, first, x), (b, second, y) = eight_bits(draw, (*lead, k)), eight_bits(draw, (k, n))
    step, panel = np.arange(k) // 128, np.arange(n) // 128
    blocks = -(-k // 128), -(-n // 128)
    kinds = ["float32", "float32", "float16", "bfloat16"]
    d = draw.array((*lead, blocks[0]), draw.pick(kinds), special=False)
    e = draw.array(blocks, draw.pick(kinds), special=False)
    name, steps = activated(draw, "float32")
    types = {"dtype_a": first, "dtype_b": second}
    if draw.often(0.5):
        types["dtype"] = draw.pick(["bfloat16", "float16", "float32"])
    out = draw.out((*lead, n), types.get("dtype", "float32"))
    found = served.call(gk.scaled_matmul, a, b, d, e, activation=name, out=out, nothing=not k, **types)
    assert out is None or found is out
    scaled_agrees(found, x * wide(d)[..., step], y * wide(e)[step][:, panel], 128, steps)


GENERIC = pair


def test_matmul(served):
    run("matmul", served, matmul, "out", "tf32", "activation", "prologue")


def test_linear(served):
    run("linear", served, linear, "activation", "prepacked", "prologue")


def test_grouped_matmul(served):
    cases = Cases("grouped_matmul", CASES["grouped_matmul"])
    cases.run(lambda draw: grouped_matmul(draw, served))
    cases.require(*ARRAYS, *FLOATS, "int8", "nan", "inf", "out", "activation")


def test_scaled_matmul(served_on_hopper):
    cases = Cases("scaled_matmul", CASES["scaled_matmul"])
    cases.run(lambda draw: scaled_matmul(draw, served_on_hopper))
    cases.require(*ARRAYS, *EIGHT_BIT_FLOATS, "uint8", "nan", "inf", "out", "activation")


def test_tensordot(served):
    run("tensordot", served, tensordot, "prologue")


@pytest.mark.parametrize("name", ["dot", "inner", "vdot", "outer"])
def test_pairs(name, served):
    run(name, served, functools.partial(pair, name), *["out"] * (name in ("dot", "outer")))
