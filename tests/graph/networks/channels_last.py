"""Networks of Keras and JAX as tf2onnx writes them: Transposes around every convolution, norms and softmax in parts."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
from onnx import helper

from ..models import proto

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)


class Network:
    """A network in parts; every method returns the name of a tensor (n, h, w, c)."""

    def __init__(self, seed: int = 0):
        self.rng, self.number = np.random.default_rng(seed), itertools.count()
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.channels: dict[str, int] = {}

    def add(self, op: str, *inputs: str, channels: int = 0, **attributes: object) -> str:
        name = f"{op.lower()}_{next(self.number)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        self.channels[name] = channels or self.channels.get(inputs[0], 0)
        return name

    def constant(self, value: object) -> str:
        name = f"const_{next(self.number)}"
        self.constants[name] = np.asarray(value)
        return name

    def draw(self, *shape: int) -> str:
        fan = np.prod(shape[1:]) if len(shape) > 1 else 100
        return self.constant((self.rng.standard_normal(shape) * np.sqrt(2 / fan)).astype(np.float32))

    def first(self, op: str, x: str, *others: str, channels: int = 0, **attributes: object) -> str:
        """Compute by an operator of channels first."""
        turned = self.add("Transpose", x, perm=FIRST)
        made = self.add(op, turned, *others, channels=channels, **attributes)
        return self.add("Transpose", made, perm=LAST)

    def conv(self, x: str, channels: int, taps: int = 1, stride: int = 1, bias: bool = True) -> str:
        weights = self.draw(channels, self.channels[x], taps, taps)
        more = {"strides": [stride] * 2, "kernel_shape": [taps] * 2}
        y = self.first("Conv", x, weights, channels=channels, auto_pad="SAME_UPPER", **more)
        return self.add("Add", y, self.draw(channels)) if bias else y

    def norm(self, x: str) -> str:
        c = self.channels[x]
        scale, variance = (self.constant(self.rng.uniform(0.5, 1.5, c).astype(np.float32)) for _ in range(2))
        return self.first("BatchNormalization", x, scale, self.draw(c), self.draw(c), variance, epsilon=1e-3)

    def squeeze(self, x: str) -> str:
        """Scale channels as squeeze-and-excitation does."""
        c = self.channels[x]
        mean = self.add("ReduceMean", x, self.constant([1, 2]), keepdims=0)
        pooled = self.add("Reshape", mean, self.constant([-1, 1, 1, c]))
        inner = self.add("Relu", self.conv(pooled, c // 2))
        return self.add("Mul", x, self.add("Sigmoid", self.conv(inner, c)))

    def made(self, result: str, x: tuple[int, ...]) -> onnx.ModelProto:
        return proto(self.nodes, {"x": ("float32", ("n", *x[1:]))}, [result], self.constants)


def chain(side: int = 16) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Return three convolutions with biases and activations, and the shape of the input."""
    net, shape = Network(), (1, side, side, 8)
    net.channels["x"], x = 8, "x"
    for channels in (16, 16, 8):
        x = net.add("Relu", net.conv(x, channels, 3))
    return net.made(x, shape), shape


def resnet(side: int = 32, width: int = 8) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Return a residual network with padding, pooling, squeeze-and-excitation and a concatenation."""
    net, shape = Network(), (1, side, side, 3)
    net.channels["x"] = 3
    padded = net.add("Pad", "x", net.constant([0, 1, 1, 0, 0, 1, 1, 0]))
    x = net.add("Relu", net.norm(net.conv(padded, width, 3, 2)))
    x = net.first("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    for block, stride in enumerate((1, 2)):
        wide = width * 4 * (block + 1)
        y = net.add("Relu", net.norm(net.conv(x, width)))
        y = net.add("Relu", net.norm(net.conv(y, width, 3, stride)))
        y = net.norm(net.conv(y, wide))
        y = net.squeeze(y) if block else y
        x = net.add("Relu", net.add("Add", net.norm(net.conv(x, wide, 1, stride, bias=False)), y))
    half = net.add("Relu", net.conv(x, width))
    x = net.add("Concat", x, half, axis=3, channels=net.channels[x] + width)
    mean = net.add("ReduceMean", x, net.constant([1, 2]), keepdims=0)
    logits = net.add("Add", net.add("MatMul", mean, net.draw(net.channels[x], 10)), net.draw(10))
    return net.made(net.add("Softmax", logits, axis=-1), shape), shape


def classifier(batch: int = 2, tokens: int = 16, width: int = 8) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Return a classifier of bytes as JAX exports it, and the shape of its input of int32."""
    net, kinds = Network(), 32

    def number(value: float) -> str:
        return net.constant(np.float32(value))

    def spread(x: str, *shape: int) -> str:
        """Give a reduced tensor its axes back."""
        kept = net.constant(np.array(shape))
        return net.add("Expand", net.add("Reshape", x, kept), kept)

    def norm(x: str, place: int, shape: tuple[int, ...]) -> str:
        """Normalise along one axis by sums that lose it, as flax does."""
        along, kept = net.constant([place]), [1 if each == place else size for each, size in enumerate(shape)]
        share, wide = number(1 / shape[place]), [size if each == place else 1 for each, size in enumerate(shape)]
        mean = net.add("Mul", net.add("ReduceSum", x, along, keepdims=0), share)
        square = net.add("Mul", net.add("ReduceSum", net.add("Mul", x, x), along, keepdims=0), share)
        variance = net.add("Max", number(0), net.add("Sub", square, net.add("Mul", mean, mean)))
        root = net.add("Sqrt", net.add("Add", spread(variance, *kept), number(1e-6)))
        factor = net.add("Mul", net.add("Reciprocal", root), net.draw(*wide))
        centred = net.add("Sub", x, spread(mean, *kept))
        return net.add("Add", net.add("Mul", centred, factor), net.draw(*wide))

    def gelu(x: str) -> str:
        cubic = net.add("Mul", net.add("Mul", net.add("Mul", x, x), x), number(0.044715))
        inner = net.add("Tanh", net.add("Mul", net.add("Add", x, cubic), number(np.sqrt(2 / np.pi))))
        return net.add("Mul", x, net.add("Mul", net.add("Add", inner, number(1)), number(0.5)))

    column = net.constant(np.array([batch, tokens, 1]))
    equal = net.add("Equal", net.add("Reshape", "x", column), net.constant(np.arange(kinds, dtype=np.int32)))
    hot = net.add("Cast", equal, to=1)
    x = gelu(net.add("Add", net.add("MatMul", hot, net.draw(kinds, width)), net.draw(width)))
    x = norm(x, 1, (batch, tokens, width))
    x = net.add("Transpose", net.add("Unsqueeze", x, net.constant([3])), perm=(0, 2, 1, 3))
    x = net.add("Conv", x, net.draw(2 * width, width, 5, 1))
    x = net.add("Squeeze", x, net.constant([3]))
    x = gelu(net.add("Add", x, net.draw(2 * width, 1)))
    x = net.add("Squeeze", net.add("GlobalMaxPool", x), net.constant([2]))
    x = norm(x, 1, (batch, 2 * width))
    x = net.add("Add", net.add("MatMul", x, net.draw(2 * width, 10)), net.draw(10))
    along = net.constant([1])
    largest = net.add("Max", number(-np.inf), net.add("ReduceMax", x, along, keepdims=0))
    parts = net.add("Exp", net.add("Sub", x, spread(largest, batch, 1)))
    y = net.add("Div", parts, spread(net.add("ReduceSum", parts, along, keepdims=0), batch, 1))
    made = proto(net.nodes, {"x": ("int32", (batch, tokens))}, [y], net.constants)
    made.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return made, (batch, tokens)
