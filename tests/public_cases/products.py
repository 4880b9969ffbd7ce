"""Products and contractions, drawn: against NumPy in float64 and complex128, activations against ONNX."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import gensor_kernels as gk
from gensor_kernels.operators.products import quantised
from gensor_kernels.operators.tolerance.fused import gated_bound, norm_and_bound
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, EIGHT_BIT_FLOATS, array_dtype, decode, encode, facts
from gensor_kernels.operators.types.epilogue import GATES, NORMS, Step

from .drawing import FLOATS, FORMS, Draw, dtype_of
from .references import ACTIVATIONS, agree, apply_steps, product_agrees, prologue, scaled_agrees, sum_bound, wide
from .serving import Served

DTYPES = (*FLOATS, "int8", "complex64", "complex128")


#: Dtypes of the second operand for each of the first, in extreme cases; kernels do not take all.
MIXED = {
    "float64": ("float32", "complex64", "int8", "int64", "bool"),
    "float32": ("float64", "float16", "int8", "uint8", "int32"),
    "float16": ("float32", "int8", "bool"), "bfloat16": ("float32", "int8"), "int8": ("int32", "uint8", "bool"),
    "complex64": ("float32", "complex128", "int8"), "complex128": ("complex64", "float64"),
    "int32": ("int32", "float32"), "int64": ("int64", "int8"), "uint8": ("uint8", "float16"), "bool": ("bool",),
}  # fmt: skip
ALPHAS = (0, 0.0, -0.0, 3, 1e30, np.inf, -np.inf, np.nan, np.float32(3), True)


def activation(draw: Draw, dtype: str) -> tuple[str | None, list[Step]]:
    """An activation, where the dtype has them, and the steps it is."""
    name = draw.pick([None, None, *ACTIVATIONS]) if dtype in FLOATS else None
    draw.traits |= {"activation"} if name else set()
    return name, [Step(name)] if name else []


def bias_and_activation(draw: Draw, shape: Sequence[int], dtype: str) -> tuple[Any, str | None, list[Step]]:
    """A bias, an activation, and the steps they are, where the dtype has them."""
    name, steps = activation(draw, dtype)
    if dtype not in FLOATS or draw.often(0.4):
        return None, name, steps
    draw.traits.add("bias")
    bias = draw.array(shape, dtype, special=False)
    return bias, name, [Step("bias", bias), *steps]


def second(draw: Draw, dtype: str) -> tuple[str, str, str]:
    """Dtypes of both operands, and what they promote to."""
    other = dtype
    if draw.extreme and draw.often(0.3):
        dtype = draw.pick([dtype, *MIXED])
        other = draw.pick(MIXED[dtype])
        if draw.often(0.3) and "bfloat16" not in (dtype, other):
            dtype, other = other, dtype
    return dtype, other, np.promote_types(dtype_of(dtype), dtype_of(other)).name


def operation(draw: Draw, name: str, shape: Sequence[int], dtype: str) -> tuple[Any, Step]:
    """An operation of an epilogue's list, and the step that it is."""
    if name in ACTIVATIONS:
        return name, Step(name)
    if name == "scale":
        return (name, 0.5), Step(name, None, 0.5)
    first = max(len(shape) - 1, 0) if name == "bias" else int(draw.rng.integers(len(shape) + 1))
    x = draw.array(shape[first:], dtype, special=False)
    if name == "mask":
        x = np.asarray(x > 0)
        return (name, x, -2.0), Step(name, x, -2.0)
    return (name, x), Step(name, x)


def factor(draw: Draw, dtype: str) -> Any:
    """A factor of the product."""
    if not draw.extreme:
        return draw.pick([0.5, -2.0])
    if dtype.startswith("complex") and draw.often(0.5):
        return draw.pick([1j, 0j, complex(2, -0.5)])
    if draw.refuses(0.03, "no factor"):
        return draw.pick(["2", None, [2], *([] if dtype.startswith("complex") else [1j])])
    return draw.pick(ALPHAS)


def gate_or_norm(draw: Draw, served: Served) -> None:
    """A gate or a norm of the product."""
    dtype, name = draw.pick(["float16", "float32", "float64"]), draw.pick([*GATES, *NORMS])
    m, n, k = draw.extent(zero=0), draw.extent(zero=0), draw.extent(90, zero=0)
    draw.special = ""
    a, b = draw.array((m, k), dtype), draw.array((k, n if name in NORMS else 2 * n), dtype)
    bias = draw.array((b.shape[1],), dtype) if draw.often(0.4) else None
    before = [] if bias is None else [("bias", bias)]
    eps = draw.pick([1e-5, 1.0, 100.0])
    listed = [*before, (name, eps) if name in NORMS else name]
    if draw.refuses(0.1, "an epilogue of a gate or a norm that does not fit"):
        more = [*listed, "swiglu"], [*listed, ("rmsnorm", 1e-5)]
        wrong = [*more, [(name, 0.0)], [name, "geglu", name], [name, ("x",)]]
        served.call(gk.matmul, a, b, epilogue=draw.pick(wrong))
    out, own = draw.out((m, n), dtype), ACCUMULATORS[dtype]
    short = {"bias": bias, "activation": name} if name in GATES and draw.often(0.5) else {"epilogue": listed}
    found = served.call(gk.matmul, a, b, out, **short)
    values, total = wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b))
    bound = sum_bound(values, total, k, dtype, own)
    if not served.emulated:
        bound = bound + facts(dtype).unit_roundoff * np.abs(values)
    if name in NORMS:
        steps = [Step("bias", wide(bias))] if before else []
        values, bound = norm_and_bound(name, values, bound, steps, own, eps, structured=True)
    else:
        halves = [(each[:, :n], each[:, n:]) for each in (values, bound)]
        pair = None if bias is None else wide(bias).reshape(2, n)
        _, bound = gated_bound(GATES[name], *zip(*halves, strict=True), pair, own)
        g, u = (half + (0 if pair is None else pair[side]) for side, half in enumerate(halves[0]))
        values = ACTIVATIONS[GATES[name]](g) * u
    agree(found, values, bound, dtype, own)


def eight_bit_operand(draw: Draw, served: Served) -> None:
    """One operand stored in 8 bits."""
    m, n, k = draw.extent(zero=0), draw.extent(zero=0), draw.extent(90, zero=0)
    dtype, kind = draw.pick(["float16", "bfloat16", "float32"]), draw.pick([*EIGHT_BIT_FLOATS, "int8"])
    draw.special = ""
    a = draw.array((m, k), dtype)
    stored = draw.values((k, n), "int8") if kind == "int8" else encode(kind, draw.values((k, n), "float32"))
    b = draw.lay_out(stored, draw.pick([*FORMS, "contiguous"]))
    out = draw.out((m, n), dtype)
    found = served.call(gk.matmul, a, b, out, dtype_b=kind, dtype=dtype)
    numbers = wide(b) if kind == "int8" else decode(kind, b)
    values, total = wide(a) @ numbers, np.abs(wide(a)) @ np.abs(numbers)
    bound = sum_bound(values, total, k, dtype, "float32")
    agree(found, values, bound, dtype, "float32")


def matmul(draw: Draw, served: Served) -> None:
    if draw.extreme and draw.often(0.25):
        return draw.pick([gate_or_norm, gate_or_norm, eight_bit_operand])(draw, served)
    dtype, lead = draw.pick(DTYPES), draw.pick([(), (), (2,), (3, 1), (0,)])
    m, n, k = draw.extent(), draw.extent(), draw.extent(draw.pick([40, 300]))
    first, other, dtype = second(draw, dtype)
    a = draw.array((*lead, m, k), first)
    b = draw.array((*draw.pick([(), lead, (*lead[:-1], 1) if lead else ()]), k, n), other)
    if draw.often(0.1):
        a = draw.array((k,), first)
    if draw.refuses(0.04, "operands that do not fit"):
        served.call(gk.matmul, a, np.zeros(draw.pick([(), (k + 2, n), (k + 1,), (2, k + 1, n)]), b.dtype))
    shape = np.matmul(np.empty(a.shape, bool), np.empty(b.shape, bool)).shape
    keywords: dict[str, Any] = {}
    steps: list[Step] = []
    result = dtype
    if first == other == "int8" and draw.often(0.6):
        result = keywords["dtype"] = "int32"
    if dtype in FLOATS and draw.often(0.15):
        keywords["epilogue"] = []
        for name in draw.rng.permutation(["scale", "bias", "add", "mul", "mask", *ACTIVATIONS])[: draw.pick([1, 2, 4])]:
            item, step = operation(draw, str(name), shape, dtype)
            keywords["epilogue"].append(item)
            steps.append(step)
        draw.traits.add("epilogue")
    elif dtype in FLOATS or (draw.extreme and dtype.startswith("complex")):
        if draw.often(0.3):
            keywords["alpha"] = factor(draw, dtype)
            steps.append(Step("scale", None, keywords["alpha"]))
        for name in ("bias", "add"):
            if draw.often(0.3):
                over = shape[len(shape) - 1 if name == "bias" else int(draw.rng.integers(len(shape) + 1)) :]
                keywords[name] = draw.array(over, dtype, special=False)
                steps.append(Step(name, keywords[name]))
        keywords["activation"], last = activation(draw, dtype)
        steps += last
    if dtype == "float32" and draw.often(0.3):
        keywords["precision"] = "tf32"
        draw.traits.add("tf32")
    elif draw.extreme and draw.often(0.2):
        keywords["precision"] = draw.pick(["ieee", "tf32", "3m", "ozaki" if dtype != "float64" else "3m"])
    if draw.extreme and dtype in ("float16", "bfloat16") and draw.often(0.3):
        result = keywords["dtype"] = "float32"
    keywords["prologue"], before = prologue(draw, dtype, k) if first == other else (None, [])
    out = draw.out(shape, result)
    found = served.call(gk.matmul, a, b, out, nothing=not k, **keywords)
    assert found.dtype == dtype_of(result), (found.dtype, result)
    math = keywords.get("precision", "ieee")
    math = math if math == {"float32": "tf32"}.get(dtype, "3m" if dtype.startswith("complex") else "") else "ieee"
    more = {"steps": steps, "math": math, "prologue": before}
    product_agrees(found, np.matmul, a, b, k, **more)


def linear(draw: Draw, served: Served) -> None:
    dtype, m, n, k = draw.pick(DTYPES), draw.extent(), draw.extent(), draw.extent(90)
    if draw.extreme and draw.often(0.4):
        return draw.pick([quantised_linear, formatted_linear])(draw, served)
    first, other, dtype = second(draw, dtype)
    x = draw.array((*draw.pick([(), (m,), (2, m)]), k), first)
    w = draw.array((n, k), other)
    if draw.often(0.1) and first == other and dtype in DTYPES:
        w = gk.prepack(w, axis=-1, rows=max(m, 1))
        draw.traits.add("prepacked")
    bias, name, steps = bias_and_activation(draw, (n,), dtype)
    asked, before = prologue(draw, dtype, k) if type(w) is np.ndarray and first == other else (None, [])
    found = served.call(gk.linear, x, w, bias, name, nothing=not k, prologue=asked)
    product_agrees(found, lambda a, b: a @ b.T, x, w, k, steps=steps, prologue=before)


def quantised_linear(draw: Draw, served: Served) -> None:
    """Weights of 4 and 8 bits, one scale for each group of a row."""
    dtype, n, group = draw.pick(["float16", "bfloat16", "float32"]), draw.extent(zero=0), draw.pick([32, 64, 128, 48])
    count, bits = draw.pick([1, 2, 3]), draw.pick([4, 8])
    k = group * count if count > 1 else 2 * draw.extent(60, zero=0)
    x = draw.array((*draw.pick([(), (draw.extent(),), (2, draw.extent())]), k), dtype, special=False)
    numbers = draw.rng.integers(*((0, 16) if bits == 4 else (-128, 128)), (n, k))
    w = numbers.astype(np.int8) if bits == 8 else (numbers[:, ::2] + 16 * numbers[:, 1::2]).astype(np.uint8)
    shape = (n,) if count == 1 and draw.often(0.5) else (n, count)
    scales = draw.array(shape, dtype, special=False)
    zeros = draw.rng.integers(*((0, 16) if bits == 4 else (-9, 9)), shape) if draw.often(0.5) else None
    zeros = None if zeros is None else zeros.astype(np.uint8 if bits == 4 and draw.often(0.5) else np.int8)
    bias, name, steps = bias_and_activation(draw, (n,), dtype)
    given = draw.pick([group, None]) if count > 1 else None
    if draw.refuses(0.06, "groups that do not fit"):
        wrong = draw.pick(
            [{"group": group - 1 if count > 1 else -1}, {"group": -group}, {"zeros": np.zeros((n + 1, count), np.int8)}]
        )
        given, zeros = wrong.get("group", given), wrong.get("zeros", zeros)
    found = served.call(gk.linear, x, w, bias, name, scales=scales, zeros=zeros, group=given)
    centre = 8 if bits == 4 else 0
    away = np.full(shape, centre) if zeros is None else zeros.astype(np.int64)
    spread = [np.repeat(wide(each).reshape(n, count), k // count, 1) for each in (away, scales)]
    weights, size = (numbers - spread[0]) * spread[1], (np.abs(numbers) + np.abs(spread[0])) * np.abs(spread[1])
    values, total = wide(x) @ weights.T, np.abs(wide(x)) @ size.T
    bound = sum_bound(values, total, 2 * k + 4 * count, dtype, "float32")
    values, bound = apply_steps(values, bound, steps, dtype)
    agree(found, values, bound, dtype, "float32")


def formatted(draw: Draw, form: str, lead: Sequence[int], k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Elements and scales of an array in a block-scaled format, in any form, and its numbers in float64."""
    each, shape = quantised.FORMATS[form], (*lead, k)
    if each.bits == 4:
        elements = draw.rng.integers(0, 256, (*lead, k // 2)).astype(np.uint8)
    else:
        elements = encode(each.element, draw.rng.standard_normal(shape))
    near_one = (40, 72) if form == "nvfp4" else (120, 135)
    scales = draw.rng.integers(*near_one, (*lead, quantised.groups_of(k, each.group))).astype(np.uint8)
    elements, scales = (draw.lay_out(array, draw.pick([*FORMS, "contiguous"])) for array in (elements, scales))
    draw.traits.add(form)
    factors = np.repeat(decode(each.scale, scales), each.group, -1)[..., :k]
    return elements, scales, quantised.numbers(each.element, elements).reshape(shape) * factors


def formatted_linear(draw: Draw, served: Served) -> None:
    """Weights in a block-scaled format."""
    dtype, n, form = draw.pick(["float16", "bfloat16", "float32"]), draw.extent(zero=0), draw.pick([*quantised.FORMATS])
    k = draw.pick([32, 64, 160, 2 * draw.extent(60, zero=0)])
    x = draw.array((*draw.pick([(), (draw.extent(),), (2, draw.extent())]), k), dtype, special=False)
    w, scales, weights = formatted(draw, form, (n,), k)
    alpha, (bias, name, steps) = draw.pick([1, 0.75]), bias_and_activation(draw, (n,), dtype)
    if draw.refuses(0.06, "scales that do not fit"):
        scales = np.ones((n, scales.shape[1] + 1), np.uint8)
    found = served.call(gk.linear, x, w, bias, name, scales=scales, format=form, alpha=alpha)
    values, total = wide(x) @ weights.T, np.abs(wide(x)) @ np.abs(weights).T
    bound = sum_bound(values, total, 2 * k, dtype, "float32")
    values, bound = apply_steps(values, bound, [Step("scale", None, alpha), *steps], dtype)
    agree(found, values, bound, dtype, "float32")


def formatted_matmul(draw: Draw, served: Served) -> None:
    """Two operands in a block-scaled format."""
    n, form, lead = draw.extent(zero=0), draw.pick([*quantised.FORMATS]), draw.pick([(), (draw.extent(),), (2, 3)])
    k, result = draw.pick([32, 64, 160, 2 * draw.extent(60, zero=0)]), draw.pick(["float32", "bfloat16", "float16"])
    (a, d, x), (b, e, y) = formatted(draw, form, lead, k), formatted(draw, form, (n,), k)
    bias, name, steps = bias_and_activation(draw, (n,), result)
    out = draw.out((*lead, n), result)
    ends = {"bias": bias, "activation": name, "out": out, "dtype": result}
    found = served.call(gk.scaled_matmul, a, b.T, d, e.T, format=form, **ends)
    scaled_agrees(found, x, y.T, 32, steps)


def tensordot(draw: Draw, served: Served) -> None:
    dtype = draw.pick(DTYPES)
    left, inner, right = ([draw.extent(8) for _ in range(draw.pick([0, 1, 2]))] for _ in range(3))
    order = [int(each) for each in draw.rng.permutation(len(inner))]
    a, b = draw.array((*left, *inner), dtype), draw.array((*(inner[i] for i in order), *right), dtype)
    axes: Any = ([len(left) + i for i in order], list(range(len(inner))))
    if order == sorted(order) and draw.often(0.5):
        axes = len(inner)
    if draw.extreme:
        forms = [axes] if isinstance(axes, int) else [axes, tuple(map(tuple, axes))]
        if not isinstance(axes, int) and a.ndim and b.ndim:
            forms.append(tuple([each - rank for each in one] for one, rank in zip(axes, (a.ndim, b.ndim), strict=True)))
        given = draw.pick(forms)
        if draw.refuses(0.06, "axes that do not fit"):
            wrong = [a.ndim + b.ndim + 1, ([a.ndim], [0]), ([0], [0, 1]), "x", ([0, 0], [0, 0]), ([2**40], [0]), 1.5]
            given = draw.pick(wrong)
    terms = int(np.prod(inner))
    asked, before = prologue(draw, dtype, a.shape[-1], share=0.1, curves=False) if a.ndim else (None, [])
    found = served.call(gk.tensordot, a, b, given if draw.extreme else axes, nothing=not terms, prologue=asked)
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
    first, other, dtype = second(draw, dtype)
    x, y = draw.array(a, first), draw.array(b, other)
    if name != "outer" and a and b and draw.refuses(0.05, "operands that do not fit"):
        served.call(getattr(gk, name), x, np.zeros(k + 2 if name == "dot" else (*b[:-1], b[-1] + 1 + k), y.dtype))
    function, numpy = getattr(gk, name), getattr(np, name)
    terms = 1 if name == "outer" or not a or not b else x.size if name == "vdot" else a[-1]
    keywords: dict[str, Any] = {}
    shape = np.asarray(numpy(np.zeros(a), np.zeros(b))).shape
    if name in ("dot", "outer"):
        keywords["out"] = draw.out(shape, dtype)
    found = served.call(function, x, y, nothing=not terms, **keywords)
    conjugate = (0,) if name == "vdot" else ()
    right = numpy if a and b else np.multiply  # BLAS multiplies by a scalar of 0 without looking
    product_agrees(found, lambda u, v: np.asarray(right(u, v)), x, y, terms, conjugate=conjugate)


def grouped_matmul(draw: Draw, served: Served) -> None:
    dtype, n, k = draw.pick((*FLOATS, "int8")), draw.extent(zero=0), draw.extent(90, zero=0)
    rows = [draw.pick([0, 1, 3, 17, 33]) for _ in range(draw.pick([1, 2, 4]))] + draw.pick([[], [], [0] * 33])
    ends = np.cumsum(rows).astype(draw.pick([np.int32, np.int64]))
    x, w = draw.array((sum(rows), k), dtype), draw.array((len(rows), k, n), dtype)
    given: dict[str, Any] = {"offsets": ends}
    if draw.extreme:
        given = draw.pick([given, {"sizes": np.array(rows)}, {"sizes": rows}, {"offsets": tuple(ends.tolist())}])
    if draw.refuses(0.08, "groups that cannot be"):
        wrong = [[*rows, 0], [-1, *rows[1:]], [*rows[:-1], rows[-1] + 1], [2**32 + each for each in rows]]
        wrong.append([0.5] * len(rows))
        given = {"sizes": draw.pick(wrong)}
    out = draw.out((sum(rows), n), dtype)
    name, steps = activation(draw, dtype)
    found = served.call(gk.grouped_matmul, x, w, **given, activation=name, out=out)

    def f(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        parts = [part @ own for part, own in zip(np.split(a, ends[:-1]), b, strict=True)]
        return np.concatenate(parts)

    product_agrees(found, f, x, w, k, steps=steps)


def eight_bits(draw: Draw, shape: tuple[int, ...]) -> tuple[np.ndarray, str, np.ndarray]:
    """Numbers of an 8-bit float type, in bytes or as the type itself; its name, and the numbers in float64."""
    name = draw.pick(EIGHT_BIT_FLOATS)
    stored = encode(name, draw.values(shape, "float32"))
    stored = stored.view(array_dtype(name)) if draw.often(0.5) else stored
    found = draw.lay_out(stored, draw.pick([*FORMS, "contiguous"]))
    sizes = {"zero-size": 0 in shape, "size one": 1 in shape}
    draw.traits |= {name, stored.dtype.name, *(trait for trait, there in sizes.items() if there)}
    return found, name, decode(name, found)


def scaled_matmul(draw: Draw, served: Served) -> None:
    if draw.extreme and draw.often(0.4):
        return formatted_matmul(draw, served)
    k, n = draw.pick([16, 112, 128, 144, 256, 400]), draw.pick([draw.extent(), 129, 200])
    k = 0 if draw.often(0.02) else k
    lead = draw.pick([(), (draw.extent(),), (2, draw.extent())])
    (a, first, x), (b, second, y) = eight_bits(draw, (*lead, k)), eight_bits(draw, (k, n))
    step, panel = np.arange(k) // 128, np.arange(n) // 128
    blocks = -(-k // 128), -(-n // 128)
    kinds = ["float32", "float32", "float16", "bfloat16"]
    d = draw.array((*lead, blocks[0]), draw.pick(kinds), special=False)
    e = draw.array(blocks, draw.pick(kinds), special=False)
    types = {"dtype_a": first, "dtype_b": second}
    if draw.often(0.5):
        types["dtype"] = draw.pick(["bfloat16", "float16", "float32"])
    result = types.get("dtype", "float32")
    shape = draw.pick([(n,), (*lead, n), (*(1 for _ in lead), n)]) if draw.extreme else (n,)
    bias, name, steps = bias_and_activation(draw, shape, result)
    out = draw.out((*lead, n), result)
    found = served.call(gk.scaled_matmul, a, b, d, e, bias=bias, activation=name, out=out, nothing=not k, **types)
    scaled_agrees(found, x * wide(d)[..., step], y * wide(e)[step][:, panel], 128, steps)


CASES = {
    "matmul": matmul, "linear": linear, "tensordot": tensordot, "grouped_matmul": grouped_matmul,
    "scaled_matmul": scaled_matmul,
    **{name: functools.partial(pair, name) for name in ("dot", "inner", "vdot", "outer")},
}  # fmt: skip
