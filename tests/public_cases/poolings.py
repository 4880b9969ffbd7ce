"""Poolings, drawn: against NumPy's sliding windows in float64, and these against ONNX's reference evaluator."""

import functools
from typing import Any

import numpy as np

import gensor_kernels as gk
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, facts

from . import onnx_ops
from .drawing import FLOATS, Draw
from .images import LAST, Pool, operand
from .references import agree, wide
from .serving import Served


def pooling(name: str, draw: Draw, served: Served) -> None:
    dtype = draw.pick((*FLOATS, "int8") if name == "max_pool2d" else FLOATS)
    if draw.extreme and name == "max_pool2d":
        dtype = draw.pick([dtype, dtype, "uint8", "int32", "int64"])
    last = draw.often(0.4)
    draw.traits |= {"channels last"} if last else set()
    shape = (draw.pick([1, 2, 3, 0]), draw.pick([1, 2, 8, 9, 17]), draw.pick([5, 8, 13]), draw.pick([4, 7, 16]))
    x, image = operand(draw, shape, dtype, last)
    image = wide(image)
    keywords: dict[str, Any] = {"layout": "NHWC" if last else "NCHW"}
    if name == "global_avg_pool2d":
        pool, terms, arguments = _mean, shape[2] * shape[3], ()
    else:
        pool = window(name, draw)
        terms, arguments = pool.window[0] * pool.window[1], (tuple(pool.window),)
        keywords |= {"stride": tuple(pool.steps), "padding": tuple(pool.pads), "ceil_mode": pool.ceil}
        keywords |= {"dilation": tuple(pool.holes)} if name == "max_pool2d" else {"count_include_pad": pool.counted}
        # ONNX's evaluator fails for maxima under stride 1 with other padding along h than along w.
        comparable = name == "avg_pool2d" or pool.pads[0] == pool.pads[1]
        if shape[0] and np.isfinite(image).all() and not pool.ceil and comparable:
            np.testing.assert_allclose(pool(image), pool.onnx(image), rtol=1e-12, atol=1e-14)
    values = pool(image)
    out = keywords["out"] = draw.out([values.shape[axis] for axis in LAST[4]] if last else values.shape, dtype)
    found = served.call(getattr(gk, name), x, *arguments, **keywords)
    assert out is None or found is out
    found = found.transpose(np.argsort(LAST[4])) if last else found
    if name == "max_pool2d":
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found.astype(np.float64), values)
        return
    accumulator = ACCUMULATORS[dtype]
    u = facts(accumulator).unit_roundoff * (2 if dtype == "float64" else 1)
    bound = (terms + 16) * u * pool(np.abs(image))
    bound = np.where(np.isfinite(values) & np.isfinite(bound), bound, 0.0)
    agree(found, tolerance_base.expect(values, bound, accumulator=accumulator, output=dtype))


def window(name: str, draw: Draw) -> Pool:
    """Any window that fits the smallest image."""
    extents = [draw.pick([1, 2, 3]) for _ in "hw"]
    return Pool(
        name,
        extents,
        steps=[draw.pick([1, 2, 3]) for _ in "hw"],
        pads=[draw.pick(range(extent // 2 + 1)) for extent in extents],
        holes=[draw.pick([1, 1, 2]) if extent < 3 else 1 for extent in extents] if name == "max_pool2d" else [1, 1],
        ceil=draw.often(0.4),
        counted=draw.often(0.5),
    )


def _mean(image: np.ndarray) -> np.ndarray:
    """The average of whole images, by ONNX where there are any."""
    return onnx_ops.run("GlobalAveragePool", image) if image.size else np.zeros((*image.shape[:2], 1, 1))


CASES = {name: functools.partial(pooling, name) for name in ("max_pool2d", "avg_pool2d", "global_avg_pool2d")}
