"""A detector in the manner of YOLO: a backbone with SiLU, merged features of three scales, boxes and scores of cells.

    python examples/detector.py --model detector.onnx      # on a GPU, through CuPy
    python examples/detector.py --emulate sm_87            # a small model with random weights, without a GPU

A file is a detector that was exported without non-maximum suppression, which is the caller's. Without a file, weights
are random. Results are compared with onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from common import Builder, check_on_image


@dataclass(frozen=True)
class Config:
    """Sizes of a model: channels of the first features, blocks of each scale, classes, pixels of a side."""

    width: int = 32
    blocks: int = 2
    classes: int = 80
    side: int = 640


SMALL = Config(width=8, blocks=1, classes=3, side=64)


def build(config: Config, dtype: str = "float32") -> onnx.ModelProto:
    """Return the model: (x, y, width, height, scores) of every cell of images in NCHW, (batch, cells, 4 + classes)."""
    c, add = config, Builder(dtype)

    def convolve(name: str, x: str, channels: int, out: int, taps: int, stride: int = 1, act: bool = True) -> str:
        weight = add.weight(name + ".weight", out, channels, taps, taps, summed=channels * taps * taps)
        window = {"kernel_shape": [taps] * 2, "pads": [taps // 2] * 4, "strides": [stride] * 2}
        y = add("Conv", x, weight, add.weight(name + ".bias", out), **window)
        return add("Mul", y, add("Sigmoid", y)) if act else y

    def stage(name: str, x: str, channels: int, out: int, stride: int) -> str:
        """Add half of the channels through residual blocks, the other half past them."""
        x, half = convolve(name + ".down", x, channels, out, 3, stride), out // 2
        left, right = (convolve(f"{name}.{side}", x, out, half, 1) for side in ("left", "right"))
        for block in range(c.blocks):
            inner = convolve(f"{name}.{block}.0", left, half, half, 1)
            left = add("Add", left, convolve(f"{name}.{block}.1", inner, half, half, 3))
        return convolve(name + ".join", add("Concat", left, right, axis=1), out, out, 1)

    x, w = convolve("stem", "images", 3, c.width, 3, 2), c.width
    x = stage("stage1", x, w, 2 * w, 2)
    scales = [x := stage(f"stage{2 + step}", x, 2**step * 2 * w, 2**step * 4 * w, 2) for step in range(3)]
    add.constants["twice"] = np.array([1, 1, 2, 2], np.float32)
    for step in (1, 0):  # features of a coarse scale, and of the next finer
        channels = 2**step * 4 * w
        way = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        upper = add("Resize", convolve(f"up{step}", scales[step + 1], 2 * channels, channels, 1), "", "twice", **way)
        merged = add("Concat", upper, scales[step], axis=1)
        scales[step] = convolve(f"merge{step}", merged, 2 * channels, channels, 3)
    found = []
    for step, features in enumerate(scales):
        cells, stride = c.side // (8 << step), 8 << step
        y = convolve(f"head{step}", features, 2**step * 4 * w, 4 + c.classes, 1, act=False)
        y = add("Sigmoid", add("Transpose", add("Reshape", y, add.integers(0, 4 + c.classes, -1)), perm=[0, 2, 1]))
        centre, extent, scores = add("Split", y, add.integers(2, 2, c.classes), results=3, axis=2)
        corner = np.stack(np.meshgrid(*[np.arange(cells)] * 2), -1).reshape(1, -1, 2) - 0.5
        add.constants |= {f"grid{step}": corner.astype(dtype), f"stride{step}": np.array(stride, dtype)}
        add.constants |= {"two": np.array(2, dtype), f"reach{step}": np.array(4 * stride, dtype)}
        centre = add("Mul", add("Add", add("Mul", centre, "two"), f"grid{step}"), f"stride{step}")
        extent = add("Mul", add("Mul", extent, extent), f"reach{step}")
        found.append(add("Concat", centre, extent, scores, axis=2))
    add("Concat", *found, results=["boxes"], axis=1)
    cells = sum((c.side // (8 << step)) ** 2 for step in range(3))
    return add.model({"images": ("batch", 3, c.side, c.side)}, {"boxes": ("batch", cells, 4 + c.classes)})


def main(given: Sequence[str] | None = None) -> float:
    """Run the command; return the largest difference."""
    return check_on_image(__doc__, given, build, SMALL, Config())


if __name__ == "__main__":
    main()
