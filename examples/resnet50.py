"""ResNet-50: batch norms are folded, and bias, residual and ReLU are computed by the kernel of every convolution.

    python examples/resnet50.py --model resnet50.onnx      # on a GPU, through CuPy
    python examples/resnet50.py --emulate sm_87            # a small model with random weights, without a GPU

torchvision writes the file: torch.onnx.export(torchvision.models.resnet50(weights="DEFAULT").eval(), images,
"resnet50.onnx"). Without a file, weights are random. Results are compared with onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from common import Builder, check

EXPANSION = 4  # output channels of a block over its inner channels


@dataclass(frozen=True)
class Config:
    """Sizes of a model; the defaults are ResNet-50."""

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    classes: int = 1000
    side: int = 224


SMALL = Config(blocks=(1, 1), width=16, classes=10, side=32)


def blocks(config: Config) -> Iterator[tuple[str, int]]:
    """Yield (name, stride) of every block."""
    for stage, count in enumerate(config.blocks):
        for number in range(count):
            yield f"layer{stage + 1}.{number}", 2 if stage and not number else 1


def norm_of(convolution: str) -> str:
    """Return the name of the batch norm after a convolution."""
    return convolution.replace("downsample.0", "downsample.1").replace("conv", "bn")


def build(config: Config, dtype: str = "float32") -> onnx.ModelProto:
    """Return the model, with torchvision's names of weights: logits (batch, classes) of images in NCHW."""
    add = Builder(dtype)

    def convolve(name: str, x: str, channels: int, out: int, taps: int, stride: int = 1) -> str:
        weight = add.weight(name + ".weight", out, channels, taps, taps, summed=channels * taps * taps)
        padding = [taps // 2] * 4
        y = add("Conv", x, weight, strides=[stride] * 2, pads=padding, kernel_shape=[taps] * 2)
        means = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
        parts = [add.weight(f"{norm_of(name)}.{part}", out, around=mean) for part, mean in means.items()]
        return add("BatchNormalization", y, *parts, epsilon=1e-5)

    c = config
    x = add("Relu", convolve("conv1", "images", 3, c.width, 7, 2))
    x = add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = c.width
    for name, stride in blocks(c):
        inner = c.width * 2 ** (int(name[5]) - 1)
        out = inner * EXPANSION
        y = add("Relu", convolve(name + ".conv1", x, channels, inner, 1))
        y = add("Relu", convolve(name + ".conv2", y, inner, inner, 3, stride))
        y = convolve(name + ".conv3", y, inner, out, 1)
        if name.endswith(".0"):
            x = convolve(name + ".downsample.0", x, channels, out, 1, stride)
        x, channels = add("Relu", add("Add", y, x)), out
    pooled = add("Flatten", add("GlobalAveragePool", x))
    weight = add.weight("fc.weight", c.classes, channels, summed=channels)
    add("Gemm", pooled, weight, add.weight("fc.bias", c.classes), results=["logits"], transB=1)
    return add.model({"images": ("batch", 3, c.side, c.side)}, {"logits": ("batch", c.classes)})


def main(given: Sequence[str] | None = None) -> float:
    """Run the command; return the largest difference."""

    def images(small: bool) -> dict[str, np.ndarray]:
        side = (SMALL if small else Config()).side
        return {"images": np.random.default_rng(1).standard_normal((1, 3, side, side))}

    return check(__doc__, given, lambda small, dtype: build(SMALL if small else Config(), dtype), images)


if __name__ == "__main__":
    main()
