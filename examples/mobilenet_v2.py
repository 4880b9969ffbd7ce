"""MobileNetV2: inverted residuals, whose convolutions include batch norm, ReLU6 and the residual.

    python examples/mobilenet_v2.py --model mobilenet_v2.onnx      # on a GPU, through CuPy
    python examples/mobilenet_v2.py --emulate sm_87                # a small model with random weights, without a GPU

torchvision writes the file: torch.onnx.export(torchvision.models.mobilenet_v2(weights="DEFAULT").eval(), images,
"mobilenet_v2.onnx"). Without a file, weights are random. Results are compared with onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from common import Builder, check_on_image


@dataclass(frozen=True)
class Config:
    """Sizes of a model; the defaults are MobileNetV2: (expansion, channels, blocks, stride) of each stage."""

    stages: tuple[tuple[int, int, int, int], ...] = (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    )
    first: int = 32
    last: int = 1280
    classes: int = 1000
    side: int = 224


SMALL = Config(stages=((1, 8, 1, 1), (6, 16, 2, 2)), first=16, last=64, classes=10, side=32)


def build(config: Config, dtype: str = "float32") -> onnx.ModelProto:
    """Return the model: logits (batch, classes) of images in NCHW."""
    c, add = config, Builder(dtype)
    low, high = (add.weight(name, around=value, summed=10**12) for name, value in (("zero", 0.0), ("six", 6.0)))
    add.constants |= {low: np.array(0, dtype), high: np.array(6, dtype)}

    def convolve(name: str, x: str, channels: int, out: int, taps: int, stride: int = 1, groups: int = 1) -> str:
        own = channels // groups
        weight = add.weight(name + ".0.weight", out, own, taps, taps, summed=own * taps * taps)
        window = {"kernel_shape": [taps] * 2, "pads": [taps // 2] * 4, "strides": [stride] * 2}
        y = add("Conv", x, weight, group=groups, **window)
        means = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
        return add("BatchNormalization", y, *(add.weight(f"{name}.1.{k}", out, around=v) for k, v in means.items()))

    x, channels, number = add("Clip", convolve("features.0", "images", 3, c.first, 3, 2), low, high), c.first, 0
    for expansion, out, count, step in c.stages:
        for stride in (step, *(1,) * (count - 1)):
            number += 1
            y, inner, name = x, channels * expansion, f"features.{number}.conv"
            if expansion > 1:
                y = add("Clip", convolve(name + ".expand", y, channels, inner, 1), low, high)
            y = add("Clip", convolve(name + ".depthwise", y, inner, inner, 3, stride, inner), low, high)
            y = convolve(name + ".project", y, inner, out, 1)
            x = add("Add", x, y) if stride == 1 and channels == out else y
            channels = out
    x = add("Clip", convolve("features.last", x, channels, c.last, 1), low, high)
    pooled = add("Flatten", add("GlobalAveragePool", x))
    weight = add.weight("classifier.1.weight", c.classes, c.last, summed=c.last)
    add("Gemm", pooled, weight, add.weight("classifier.1.bias", c.classes), results=["logits"], transB=1)
    return add.model({"images": ("batch", 3, c.side, c.side)}, {"logits": ("batch", c.classes)})


def main(given: Sequence[str] | None = None) -> float:
    """Run the command; return the largest difference."""
    return check_on_image(__doc__, given, build, SMALL, Config())


if __name__ == "__main__":
    main()
