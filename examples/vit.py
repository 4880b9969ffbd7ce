"""ViT-B/16: an image as a sequence of patches; attention is one kernel, and products take biases, GELU and residuals.

    python examples/vit.py --model vit_b_16.onnx      # on a GPU, through CuPy
    python examples/vit.py --emulate sm_87            # a small model with random weights, without a GPU

torchvision writes the file: torch.onnx.export(torchvision.models.vit_b_16(weights="DEFAULT").eval(), images,
"vit_b_16.onnx"). Without a file, weights are random. Results are compared with onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from common import Builder, check_on_image


@dataclass(frozen=True)
class Config:
    """Sizes of a model; the defaults are ViT-B/16."""

    layers: int = 12
    heads: int = 12
    width: int = 768
    patch: int = 16
    classes: int = 1000
    side: int = 224


SMALL = Config(layers=2, heads=2, width=64, patch=8, classes=10, side=32)


def encoder(add: Builder, x: str, layers: int, heads: int, width: int) -> str:
    """Add layers with norms before attention and before the two products, and a norm after them."""

    def project(name: str, x: str, rows: int, out: int) -> str:
        product = add("MatMul", x, add.weight(name + ".weight", rows, out, summed=rows))
        return add("Add", product, add.weight(name + ".bias", out))

    def norm(name: str, x: str) -> str:
        parts = (add.weight(f"{name}.{part}", width, around=mean) for part, mean in (("weight", 1.0), ("bias", 0.0)))
        return add("LayerNormalization", x, *parts, epsilon=1e-6)

    for layer in range(layers):
        name = f"layers.{layer}."
        qkv = project(name + "qkv", norm(name + "norm_1", x), width, 3 * width)
        q, k, v = add("Split", qkv, results=3, axis=2, num_outputs=3)
        x = add(
            "Add",
            x,
            project(name + "out", add("Attention", q, k, v, q_num_heads=heads, kv_num_heads=heads), *(width,) * 2),
        )
        hidden = add("Gelu", project(name + "fc", norm(name + "norm_2", x), width, 4 * width))
        x = add("Add", x, project(name + "projection", hidden, 4 * width, width))
    return norm("norm", x)


def build(config: Config, dtype: str = "float32") -> onnx.ModelProto:
    """Return the model: logits (batch, classes) of images in NCHW."""
    c, add = config, Builder(dtype)
    patches = (c.side // c.patch) ** 2
    taps = add.weight("patches.weight", c.width, 3, c.patch, c.patch, summed=3 * c.patch**2)
    window = {"kernel_shape": [c.patch] * 2, "strides": [c.patch] * 2}
    x = add("Conv", "images", taps, add.weight("patches.bias", c.width), **window)
    x = add("Transpose", add("Reshape", x, add.integers(0, c.width, patches)), perm=[0, 2, 1])
    batch = add("Shape", "images", end=1)
    token = add("Expand", add.weight("class", 1, 1, c.width), add("Concat", batch, add.integers(1, c.width), axis=0))
    x = add("Add", add("Concat", token, x, axis=1), add.weight("positions", 1, patches + 1, c.width))
    first = add("Gather", encoder(add, x, c.layers, c.heads, c.width), add.integer(0), axis=1)
    weight = add.weight("head.weight", c.width, c.classes, summed=c.width)
    add("Gemm", first, weight, add.weight("head.bias", c.classes), results=["logits"])
    return add.model({"images": ("batch", 3, c.side, c.side)}, {"logits": ("batch", c.classes)})


def main(given: Sequence[str] | None = None) -> float:
    """Run the command; return the largest difference."""
    return check_on_image(__doc__, given, build, SMALL, Config())


if __name__ == "__main__":
    main()
