"""Convolutions and poolings, drawn: against ONNX's reference evaluator and NumPy's sliding windows in float64."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import gensor_kernels as gk
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, facts
from gensor_kernels.operators.types.epilogue import Step

from . import onnx_ops
from .drawing import FLOATS, Draw, dtype_of
from .references import ACTIVATIONS, agree, product_agrees, prologue, wide
from .serving import Served

LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}  # channels last
LAYOUTS = {3: ("NCW", "NWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


def operand(draw: Draw, shape: tuple[int, ...], dtype: str, last: bool, **more: Any) -> tuple[np.ndarray, np.ndarray]:
    """An operand as the function gets it, and the same with channels as the second axis."""
    order = LAST[len(shape)]
    if not last:
        x = draw.array(shape, dtype, **more)
        return x, x
    x = draw.array([shape[axis] for axis in order], dtype, **more)
    return x, x.transpose(np.argsort(order))


def convolution(name: str, draw: Draw, served: Served) -> None:
    dtype, rank = draw.pick((*FLOATS, "int8")), {"conv1d": 3, "conv3d": 5}.get(name, 4)
    spatial, last, transposed = rank - 2, draw.often(0.4), name == "conv_transpose2d"
    draw.traits |= {"channels last"} if last else set()
    groups = draw.pick([1, 1, 2, 3])
    c, k = groups * draw.pick([1, 2, 3, 8]), groups * draw.pick([1, 2, 5, 8])
    taps = [draw.pick([1, 2, 3]) for _ in range(spatial)]
    steps = [draw.pick([1, 1, 2, 3]) for _ in range(spatial)]
    # ONNX's evaluator multiplies elements between the taps by 0, infinities as well.
    holes = [1 if draw.special else draw.pick([1, 1, 2]) for _ in range(spatial)]
    pads = [(draw.pick([0, 1, 2]), draw.pick([0, 1, 2])) for _ in range(spatial)]
    sides = [draw.pick([5, 6, 9, 12] if spatial < 3 else [5, 6]) for _ in range(spatial)]
    n = draw.pick([1, 2, 3, 0]) if draw.often(0.5) else 2
    # Infinities of weights would meet the zeros of padding, which a scattered sum does not have.
    x, image = operand(draw, (n, c, *sides), dtype, last)
    shape = (c, k // groups, *taps) if transposed else (k, c // groups, *taps)
    mixed = draw.extreme and draw.often(0.2) and dtype not in ("int8", "bfloat16")
    other = draw.pick(["float16", "float32", "float64"]) if mixed else dtype
    w, weights = operand(draw, shape, other, last, special=False)
    own, dtype = dtype, np.promote_types(dtype_of(dtype), dtype_of(other)).name
    layout = LAYOUTS[rank][last]
    if draw.refuses(0.05, "shapes that do not fit"):
        wrong = draw.pick([w[..., None], w[0], np.concatenate([w] * 3, rank - 1 if last else 1)])
        served.call(getattr(gk, name), x, wrong, groups=c + 1 if transposed else groups, layout=layout)
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
    before: list[Any] = []
    if name != "conv3d":
        keywords["prologue"] = None
    if own == other and name != "conv3d":
        keywords["prologue"], before = prologue(draw, dtype, c, trailing=spatial, share=share)
    keywords["out"] = draw.out(over, "int32" if dtype == "int8" else dtype)
    found = served.call(getattr(gk, name), x, w, **keywords)
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


@dataclass(frozen=True)
class Pool:
    """A pooling of images (n, c, h, w); pairs are along h and w."""

    name: str
    window: Sequence[int]
    steps: Sequence[int]
    pads: Sequence[int]
    holes: Sequence[int]
    ceil: bool
    counted: bool

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """By windows of a padded image; PyTorch's rules for the last window of ceil_mode and for what counts."""
        sizes = [self._size(axis, side) for axis, side in enumerate(x.shape[2:])]
        ends = [
            max(pad, (count - 1) * step + reach - side - pad)
            for side, pad, count, step, reach in zip(x.shape[2:], self.pads, sizes, self.steps, self.reach, strict=True)
        ]
        if self.name == "max_pool2d":
            return self._windows(self._pad(x, ends, -np.inf), sizes).max(-1)
        inner = self._pad(np.ones((1, 1, *x.shape[2:])), self.pads, float(self.counted))
        behind = [(0, end - pad) for end, pad in zip(ends, self.pads, strict=True)]
        counts = self._windows(np.pad(inner, [(0, 0), (0, 0), *behind]), sizes).sum(-1)
        return self._windows(self._pad(x, ends, 0.0), sizes).sum(-1) / counts

    @property
    def reach(self) -> list[int]:
        return [hole * (extent - 1) + 1 for extent, hole in zip(self.window, self.holes, strict=True)]

    def _size(self, axis: int, side: int) -> int:
        pad, step = self.pads[axis], self.steps[axis]
        room = side + 2 * pad - self.reach[axis]
        if not self.ceil:
            return room // step + 1
        count = -(-room // step) + 1
        return count - 1 if (count - 1) * step >= side + pad else count

    def _pad(self, x: np.ndarray, ends: Sequence[int], value: float) -> np.ndarray:
        return np.pad(x, [(0, 0), (0, 0), *zip(self.pads, ends, strict=True)], constant_values=value)

    def _windows(self, padded: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
        views = np.lib.stride_tricks.sliding_window_view(padded, self.reach, (2, 3))
        views = views[:, :, :: self.steps[0], :: self.steps[1]][:, :, : sizes[0], : sizes[1]]
        views = views[..., :: self.holes[0], :: self.holes[1]]
        return views.reshape(*views.shape[:4], self.window[0] * self.window[1])

    def onnx(self, x: np.ndarray) -> np.ndarray:
        """ONNX's operator: the same but for NaN, and for ceil_mode, whose rules differ."""
        attributes = {"kernel_shape": self.window, "strides": self.steps, "pads": [*self.pads, *self.pads]}
        if self.name == "max_pool2d":
            return onnx_ops.run("MaxPool", x, dilations=self.holes, **attributes)
        return onnx_ops.run("AveragePool", x, count_include_pad=int(self.counted), **attributes)


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
    keywords["out"] = draw.out([values.shape[axis] for axis in LAST[4]] if last else values.shape, dtype)
    found = served.call(getattr(gk, name), x, *arguments, **keywords)
    found = found.transpose(np.argsort(LAST[4])) if last else found
    if name == "max_pool2d":
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found.astype(np.float64), values)
        return
    accumulator = ACCUMULATORS[dtype]
    u = facts(accumulator).unit_roundoff * (2 if dtype == "float64" else 1)
    bound = (terms + 16) * u * pool(np.abs(image))
    bound = np.where(np.isfinite(values) & np.isfinite(bound), bound, 0.0)
    agree(found, values, bound, dtype, accumulator)


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


CASES = {
    **{name: functools.partial(convolution, name) for name in ("conv1d", "conv2d", "conv3d", "conv_transpose2d")},
    **{name: functools.partial(pooling, name) for name in ("max_pool2d", "avg_pool2d", "global_avg_pool2d")},
}
