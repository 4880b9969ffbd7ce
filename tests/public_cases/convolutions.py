"""Convolutions, drawn: against ONNX's reference evaluator in float64."""

import functools
from typing import Any

import numpy as np

import gensor_kernels as gk
from gensor_kernels.operators.types.epilogue import Step

from . import onnx_ops
from .drawing import FLOATS, Draw, dtype_of
from .images import LAST, operand
from .prologues import prologue
from .references import ACTIVATIONS, product_agrees
from .serving import Served


def convolution(name: str, draw: Draw, served: Served) -> None:
    dtype, rank = draw.pick((*FLOATS, "int8")), 3 if name == "conv1d" else 4
    spatial, last, transposed = rank - 2, draw.often(0.4), name == "conv_transpose2d"
    draw.traits |= {"channels last"} if last else set()
    groups = draw.pick([1, 1, 2, 3])
    c, k = groups * draw.pick([1, 2, 3, 8]), groups * draw.pick([1, 2, 5, 8])
    taps = [draw.pick([1, 2, 3]) for _ in range(spatial)]
    steps = [draw.pick([1, 1, 2, 3]) for _ in range(spatial)]
    # ONNX's evaluator multiplies elements between the taps by 0, infinities as well.
    holes = [1 if draw.special else draw.pick([1, 1, 2]) for _ in range(spatial)]
    pads = [(draw.pick([0, 1, 2]), draw.pick([0, 1, 2])) for _ in range(spatial)]
    sides = [draw.pick([5, 6, 9, 12]) for _ in range(spatial)]
    n = draw.pick([1, 2, 3, 0]) if draw.often(0.5) else 2
    # Infinities of weights would meet the zeros of padding, which a scattered sum does not have.
    x, image = operand(draw, (n, c, *sides), dtype, last)
    shape = (c, k // groups, *taps) if transposed else (k, c // groups, *taps)
    other = (
        draw.pick(["float16", "float32", "float64"]) if draw.extreme and draw.often(0.2) and dtype != "int8" else dtype
    )
    other = dtype if "bfloat16" in (dtype, other) else other
    w, weights = operand(draw, shape, other, last, special=False)
    own, dtype = dtype, np.promote_types(dtype_of(dtype), dtype_of(other)).name
    layout = ("NWC" if last else "NCW") if rank == 3 else ("NHWC" if last else "NCHW")
    if draw.extreme and draw.often(0.05):
        draw.refused = "shapes that do not fit"
        wrong = draw.pick([w[..., None], w[0], np.concatenate([w] * 3, rank - 1 if last else 1)])
        served.call(getattr(gk, name), x, wrong, groups=groups + 7 * transposed, layout=layout)
    one = rank == 3
    keywords: dict[str, Any] = {
        "stride": steps[0] if one else tuple(steps), "dilation": holes[0] if one else tuple(holes), "groups": groups,
        "layout": layout,
    }  # fmt: skip
    attributes = {"strides": steps, "dilations": holes, "kernel_shape": taps}
    if one:
        pads = [(pads[0][0],) * 2]
        keywords["padding"] = pads[0][0]
    else:
        keywords["padding"] = tuple(pads)
    attributes["pads"] = [p[0] for p in pads] + [p[1] for p in pads]
    if transposed:
        extra = [draw.pick([0, step - 1]) for step in steps]
        keywords["output_padding"], attributes["output_padding"] = tuple(extra), extra
    f = functools.partial(_onnx, "ConvTranspose" if transposed else "Conv", groups, attributes)
    result = f(np.zeros(image.shape), np.zeros(weights.shape)).shape
    over = [result[axis] for axis in LAST[rank]] if last else list(result)
    epilogue: list[Step] = []
    if dtype in FLOATS and draw.often(0.5):
        keywords["bias"] = draw.array((k,), dtype, special=False)
        epilogue.append(Step("bias", keywords["bias"].reshape(-1, *[1] * spatial)))
    if dtype in FLOATS and draw.often(0.3):
        keywords["add"] = draw.array(over, dtype, special=False)
        epilogue.append(Step("add", keywords["add"].transpose(np.argsort(LAST[rank])) if last else keywords["add"]))
    if dtype in FLOATS and draw.often(0.4):
        keywords["activation"] = draw.pick(list(ACTIVATIONS))
        epilogue.append(Step(keywords["activation"]))
        draw.traits.add("activation")
    share = 0.25 if name == "conv2d" else 0.08
    keywords["prologue"], before = None, []
    if own == other:
        keywords["prologue"], before = prologue(draw, dtype, c, trailing=spatial, share=share)
    out = keywords["out"] = draw.out(over, "int32" if dtype == "int8" else dtype)
    found = served.call(getattr(gk, name), x, w, **keywords)
    assert out is None or found is out
    found = found.transpose(np.argsort(LAST[rank])) if last else found
    terms = (c if transposed else c // groups) * int(np.prod(taps))
    product_agrees(found, f, image, weights, terms, steps=epilogue, prologue=before)


def _onnx(op: str, groups: int, attributes: dict[str, Any], x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Group by group: ONNX's evaluator cuts transposed weights by their other axis."""
    whole = x.dtype
    images = np.split(x.astype(np.float64), groups, 1)
    parts = [
        onnx_ops.run(op, image, part, **attributes) if x.size else _nothing(op, attributes, image, part)
        for image, part in zip(images, np.split(w.astype(np.float64), groups, 0), strict=True)
    ]
    return np.concatenate(parts, 1).astype(whole)


def _nothing(op: str, attributes: dict[str, Any], x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """No images: the shape of one's result."""
    one = onnx_ops.run(op, np.zeros((1, *x.shape[1:])), w, **attributes)
    return one[:0]


CASES = {name: functools.partial(convolution, name) for name in ("conv1d", "conv2d", "conv_transpose2d")}
