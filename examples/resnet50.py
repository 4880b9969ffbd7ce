"""ResNet-50, channels last, batch norms folded: bias, residual and ReLU are fused into every convolution.

    python examples/resnet50.py --weights resnet50.npz --images images.npy      # on a GPU, through CuPy
    python examples/resnet50.py --emulate sm_87                                 # small random weights, without a GPU

Weights are read under the names of torchvision.models.resnet50 (.safetensors, or the same arrays in an .npz);
without a file they are random. Images are normalised, (n, height, width, 3). GENSOR_RECORD=resnet50.csv in front of the
command writes the shapes that gensor-tune then tunes.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import gensor_kernels as gk

EXPANSION = 4  # output channels of a block over its inner channels
EPSILON = 1e-5  # of torchvision's batch norms


@dataclass(frozen=True)
class Config:
    """Sizes of a model; the defaults are ResNet-50."""

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    classes: int = 1000
    side: int = 224


SMALL = Config(blocks=(1, 1), width=16, classes=10, side=32)


class ResNet:
    """A model; `layers` are (weights, bias) by name, as `folded` returns them, as arrays of CuPy or NumPy."""

    def __init__(self, layers: Mapping[str, tuple[Any, Any]], config: Config):
        self.layers, self.config = layers, config

    def __call__(self, images: Any) -> Any:
        """Return the logits (n, classes) of images (n, height, width, 3)."""
        x = self.convolve("conv1", images, stride=2, padding=3)
        x = gk.max_pool2d(x, 3, 2, 1, layout="NHWC")
        for name, stride in blocks(self.config):
            x = self.block(name, x, stride)
        pooled = gk.global_avg_pool2d(x, layout="NHWC")
        return gk.linear(pooled.reshape(len(pooled), -1), *self.layers["fc"])

    def block(self, name: str, x: Any, stride: int) -> Any:
        """Compute a bottleneck: 1 x 1, 3 x 3 with the stride, 1 x 1 onto the residual."""
        inner = self.convolve(name + ".conv1", x)
        inner = self.convolve(name + ".conv2", inner, stride=stride, padding=1)
        shortcut = name + ".downsample.0"
        residual = self.convolve(shortcut, x, stride=stride, activation=None) if shortcut in self.layers else x
        return self.convolve(name + ".conv3", inner, add=residual)

    def convolve(self, name: str, x: Any, *, activation: str | None = "relu", **more: Any) -> Any:
        """Compute activation(x * w + bias + add) in one kernel."""
        return gk.conv2d(x, *self.layers[name], activation=activation, layout="NHWC", **more)


def blocks(config: Config) -> Iterator[tuple[str, int]]:
    """Yield (name, stride) of every block."""
    for stage, count in enumerate(config.blocks):
        for number in range(count):
            yield f"layer{stage + 1}.{number}", 2 if stage and not number else 1


def shapes(config: Config) -> dict[str, tuple[int, int, int, int]]:
    """Return the convolutions' names, with (out, in, height, width) of their weights."""
    found, channels = {"conv1": (config.width, 3, 7, 7)}, config.width
    for name, _ in blocks(config):
        inner = config.width * 2 ** (int(name[5]) - 1)
        if name.endswith(".0"):
            found[name + ".downsample.0"] = (inner * EXPANSION, channels, 1, 1)
        found[name + ".conv1"] = (inner, channels, 1, 1)
        found[name + ".conv2"] = (inner, inner, 3, 3)
        found[name + ".conv3"] = (inner * EXPANSION, inner, 1, 1)
        channels = inner * EXPANSION
    return found


def norm_of(convolution: str) -> str:
    """Return the name of the batch norm behind a convolution."""
    return convolution.replace("downsample.0", "downsample.1").replace("conv", "bn")


def folded(weights: Mapping[str, np.ndarray], config: Config) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Fold batch norms into weights (out, height, width, in) and biases, float16."""
    layers = {"fc": (weights["fc.weight"], weights["fc.bias"])}
    for name in shapes(config):
        gamma, beta, mean, variance = (
            weights[f"{norm_of(name)}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = gamma / np.sqrt(variance + EPSILON)
        scaled = weights[name + ".weight"] * factor[:, None, None, None]
        layers[name] = np.ascontiguousarray(scaled.transpose(0, 2, 3, 1)), beta - mean * factor
    return {name: (w.astype(np.float16), bias.astype(np.float16)) for name, (w, bias) in layers.items()}


def drawn(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw random weights, float32."""
    rng, found = np.random.default_rng(seed), {}
    for name, shape in shapes(config).items():
        found[name + ".weight"] = rng.standard_normal(shape) * np.prod(shape[1:]) ** -0.5
        for part in ("bias", "running_mean"):
            found[f"{norm_of(name)}.{part}"] = rng.standard_normal(shape[0]) * 0.1
        for part in ("weight", "running_var"):
            found[f"{norm_of(name)}.{part}"] = rng.uniform(0.5, 1.5, shape[0])
    features = config.width * EXPANSION * 2 ** (len(config.blocks) - 1)
    found["fc.weight"] = rng.standard_normal((config.classes, features)) * features**-0.5
    found["fc.bias"] = rng.standard_normal(config.classes) * 0.1
    return {name: array.astype(np.float32) for name, array in found.items()}


def load(path: str) -> dict[str, np.ndarray]:
    """Load the weights of a file."""
    if path.endswith(".npz"):
        return dict(np.load(path))
    from safetensors.numpy import load_file

    return load_file(path)


def _cupy() -> Any:
    """Return CuPy; where it is missing or reaches no GPU, end with a sentence."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # of the import, of the driver
        reason = str(error).strip().partition("\n")[0]
        sys.exit(f"no GPU is reached ({reason}): use --emulate sm_87")
    return cupy


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--weights", help="a .safetensors or .npz file (default: random weights)")
    made.add_argument("--images", help="an .npy file (default: random images)")
    made.add_argument("--batch", type=int, default=1, help="random images (default %(default)s)")
    made.add_argument("--emulate", metavar="ARCH", help="run on the emulator, a small model unless --weights is given")
    options = made.parse_args(arguments)
    xp = np if options.emulate else _cupy()
    config = SMALL if options.emulate and not options.weights else Config()
    weights = load(options.weights) if options.weights else drawn(config)
    shape = (options.batch, config.side, config.side, 3)
    images = np.load(options.images) if options.images else np.random.default_rng(1).standard_normal(shape)
    with gk.emulated(options.emulate) if options.emulate else contextlib.nullcontext():
        layers = {name: tuple(map(xp.asarray, pair)) for name, pair in folded(weights, config).items()}
        model, x = ResNet(layers, config), xp.asarray(images, xp.float16)
        began = time.perf_counter()
        print(gk.argmax(model(x), axis=-1), f"in {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
