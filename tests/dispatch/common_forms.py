"""Calls of every public function in its common forms: types, layouts, epilogues, masks and axes, at published sizes.

A form asks `explain` which tier serves a call. Its arrays are allocated, never written, and released with it.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import gensor_kernels as gk
from gensor_kernels import Explanation, explain
from gensor_kernels.machine.arch import Arch

#: Functions of gensor_kernels.dispatch that compute nothing on a device.
OTHERS = {"deterministic", "emulated", "refresh"}
HALVES, FLOATS, COMPLEX = ("fp16", "bf16"), ("fp16", "bf16", "fp32"), ("complex64", "complex128")
SCIENTIFIC = ("fp64", *COMPLEX)
DTYPES = {
    **{"fp16": "float16", "bf16": ml_dtypes.bfloat16, "fp32": "float32", "fp64": "float64"},
    **{name: name for name in ("int8", "bool", "uint8", *COMPLEX)},
}


class Form(NamedTuple):
    """One call: its public function, a name, and the call of `explain`."""

    function: str
    name: str
    ask: Callable[[], Explanation]

    @property
    def label(self) -> str:
        """The name in test reports."""
        return f"{self.function} {self.name}"

    def served_on(self, arch: Arch) -> bool:
        """Whether any family serves it on a part."""
        if self.function == "scaled_matmul":
            return arch.capability == (9, 0)
        tensor_cores_alone = self.label.startswith(("attention bf16", "linear bf16 uint8"))
        return arch.capability >= (8, 0) or not tensor_cores_alone


def new(dtype: str, *shape: int) -> Any:
    """An array that is 16-byte aligned and contiguous; memory is only reserved."""
    kind = np.dtype(DTYPES[dtype])
    size = math.prod(shape) * kind.itemsize
    whole = np.empty(size + 16, np.uint8)
    start = -whole.ctypes.data % 16
    return whole[start : start + size].view(kind).reshape(shape)


def turned(dtype: str, *shape: int) -> Any:
    """An array of that shape stored with its last two axes in the other order."""
    return new(dtype, *shape[:-2], shape[-1], shape[-2]).swapaxes(-1, -2)


def strided(dtype: str, *shape: int) -> Any:
    """Every second element along the last axis."""
    return new(dtype, *shape[:-1], 2 * shape[-1])[..., ::2]


def ask(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Callable[[], Explanation]:
    """A call of `explain`."""
    return partial(explain, function, *arguments, **keywords)


def forms() -> Iterator[Form]:
    """Every form."""
    for function, found in _FUNCTIONS.items():
        for name, ask in found():
            yield Form(function, name, ask)


Asked = Iterator[tuple[str, Callable[[], Explanation]]]


def _matmul() -> Asked:
    def of_sizes(dtype: str, m: int, n: int, k: int, /, a: Any = new, b: Any = new, **more: Any) -> Callable[[], Any]:
        return ask(gk.matmul, a(dtype, m, k), b(dtype, k, n), **more)

    for dtype in (*FLOATS, *SCIENTIFIC):
        yield dtype, of_sizes(dtype, 1024, 1024, 1024)
        yield f"{dtype} transposed a", of_sizes(dtype, 512, 512, 4096, a=turned)
        yield f"{dtype} transposed b", of_sizes(dtype, 1024, 1024, 1024, b=turned)
        yield f"{dtype} unaligned", of_sizes(dtype, 333, 127, 65)
        yield f"{dtype} vector by matrix", of_sizes(dtype, 1, 4096, 1024)
    for dtype in ("fp32", *SCIENTIFIC):
        yield f"{dtype} matrix by vector", of_sizes(dtype, 4096, 1, 1024)
        yield f"{dtype} unaligned, transposed a", of_sizes(dtype, 125, 125, 4097, a=turned)
        yield f"{dtype} unaligned, transposed b", of_sizes(dtype, 333, 127, 65, b=turned)
        yield f"{dtype} both transposed", of_sizes(dtype, 333, 127, 65, a=turned, b=turned)
        yield f"{dtype} strided", of_sizes(dtype, 256, 128, 64, a=strided, b=strided)
    for dtype in (*FLOATS, "fp64"):
        yield f"{dtype} batched", ask(gk.matmul, new(dtype, 96, 128, 64), new(dtype, 96, 64, 128))
        yield f"{dtype} with an epilogue", of_sizes(dtype, 256, 3072, 768, bias=new(dtype, 3072), activation="gelu")
    for name, b in (("new", new), ("turned", turned)):
        yield f"tf32 {name}", of_sizes("fp32", 1024, 1024, 1024, b=b, precision="tf32")
        yield f"int8 {name}", of_sizes("int8", 1024, 1024, 1024, b=b, dtype=np.int32)
    narrow = "float8_e4m3fn"
    types = {"dtype": DTYPES["bf16"], "dtype_a": narrow, "dtype_b": narrow}
    yield "8-bit floats", of_sizes("uint8", 1024, 1024, 1024, b=turned, **types)
    mixed = new("bf16", 128, 4096), turned("uint8", 4096, 4096)
    yield "bf16 by 8-bit floats", ask(gk.matmul, *mixed, dtype_b=narrow)
    yield "fp16 swiglu", of_sizes("fp16", 128, 28672, 4096, b=turned, activation="swiglu")
    yield "fp16 layernorm", of_sizes("fp16", 128, 768, 768, epilogue=[("add", new("fp16", 128, 768)), "layernorm"])
    yield "bf16 after a norm", of_sizes("bf16", 128, 4096, 4096, b=turned, prologue=[("mul", new("bf16", 4096))])


def _linear() -> Asked:
    for dtype in FLOATS:
        w, bias = new(dtype, 3072, 768), new(dtype, 3072)
        for rows in (1, 8, 128):
            yield f"{dtype} {rows}", ask(gk.linear, new(dtype, rows, 768), w, bias, "gelu")
    for dtype, gate in (("fp16", "swiglu"), ("fp16", "geglu"), ("bf16", "swiglu")):
        for rows in (1, 128):
            operands = new(dtype, rows, 4096), new(dtype, 28672, 4096)
            yield f"{dtype} {gate} {rows}", ask(gk.linear, *operands, None, gate)
    for dtype, kind in (("fp16", "int8"), ("fp16", "uint8"), ("bf16", "uint8")):
        for rows in (1, 16, 512):
            yield f"{dtype} {kind} weights {rows}", quantised(dtype, kind, rows)
    yield "fp16 int8 weights, scales of rows", quantised("fp16", "int8", 16, group=None)
    for dtype, steps in (("bf16", [("mul", new("bf16", 4096))]), ("fp16", ["gelu"])):
        operands = new(dtype, 128, 4096), new(dtype, 4096, 4096)
        yield f"{dtype} after an operation", ask(gk.linear, *operands, prologue=steps)


def quantised(dtype: str, kind: str, rows: int, group: int | None = 128) -> Callable[[], Explanation]:
    """`linear` of weights of 8 or 4 bits with a scale for 128 elements, or for a row."""
    out, k = 4096, 4096
    scales = (out,) if group is None else (out, k // group)
    w = new(kind, out, k // 2 if kind == "uint8" else k)
    return ask(gk.linear, new(dtype, rows, k), w, scales=new(dtype, *scales), group=group)


def _grouped_matmul() -> Asked:
    ends = np.arange(1, 9, dtype=np.int32) * 128
    for dtype, name, weights in (("fp16", "new", new), ("bf16", "turned", turned)):
        operands = new(dtype, 1024, 4096), weights(dtype, 8, 4096, 14336)
        yield f"{dtype} {name}", ask(gk.grouped_matmul, *operands, ends, activation="silu")


def _scaled_matmul() -> Asked:
    types = {"dtype_a": "float8_e4m3fn", "dtype_b": "float8_e4m3fn"}
    for rows, n, k in ((64, 2112, 7168), (4096, 7168, 2048)):
        operands = new("uint8", rows, k), turned("uint8", k, n)
        scales = new("fp32", rows, k // 128), turned("fp32", k // 128, -(-n // 128))
        yield f"bf16 {rows}", ask(gk.scaled_matmul, *operands, *scales, dtype=DTYPES["bf16"], **types)


def _prepack() -> Asked:
    for dtype in HALVES:
        weights = gk.prepack(new(dtype, 4096, 4096).T).T
        yield f"{dtype} 1", ask(gk.matmul, new(dtype, 1, 4096), weights)


def _einsum() -> Asked:
    network = (
        ("bhid,bhjd->bhij", (4, 12, 128, 64), (4, 12, 128, 64)),
        ("bhij,bhjd->bhid", (4, 12, 128, 128), (4, 12, 128, 64)),
        ("bij,bjk->bik", (32, 128, 128), (32, 128, 128)),
    )
    science = (
        ("ij,ik->jk", (4096, 256), (4096, 256)),
        ("ij,jk->ki", (256, 256), (256, 256)),
        ("ji,kj->ik", (256, 256), (256, 256)),
        ("ijk,k->ij", (64, 64, 64), (64,)),
        ("ijk,jl->ikl", (64, 64, 64), (64, 64)),
        ("ijkl,klmn->ijmn", (16, 16, 16, 16), (16, 16, 16, 16)),
    )
    for dtypes, forms in (((*FLOATS, "fp64"), network), (("fp32", *SCIENTIFIC), science)):
        for dtype, (text, first, second) in product(dtypes, forms):
            yield f"{dtype} {text}", ask(gk.einsum, text, new(dtype, *first), new(dtype, *second))
    for dtype in COMPLEX:
        operands = new(dtype, 1024, 256), new(dtype, 1024, 256)
        yield f"{dtype} conjugate", ask(gk.einsum, "ki,kj->ij", *operands, conjugate=0)


def _pair(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Asked:
    for dtype in ("fp16", "fp32", *SCIENTIFIC):
        yield dtype, ask(function, *(new(dtype, *shape) for shape in shapes))


def _define() -> Asked:
    for dtype in FLOATS:
        scores = gk.define("b h i d, b h j d -> b h i j", epilogue=[("scale", 0.125), "relu"])
        yield dtype, ask(scores, new(dtype, 4, 12, 128, 64), new(dtype, 4, 12, 128, 64))


def image(dtype: str, layout: str, n: int, c: int, h: int, w: int) -> Any:
    """An image, or weights, with channels first or last."""
    return new(dtype, *((n, c, h, w) if layout == "NCHW" else (n, h, w, c)))


def _conv2d() -> Asked:
    def conv(dtype: str, layout: str, c: int, k: int, side: int, taps: int, groups: int = 1, **more: Any) -> Any:
        x, w = image(dtype, layout, 8, c, side, side), image(dtype, layout, k, c // groups, taps, taps)
        keywords = {"padding": taps // 2, "groups": groups, "layout": layout, "activation": "relu"} | more
        return ask(gk.conv2d, x, w, new(dtype, k), **keywords)

    layers = ((64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (128, 128, 56, 3, 2), (256, 256, 14, 3, 1), (512, 512, 7, 3, 1))
    stem = (3, 64, 224, 7, 2)
    for dtype, layout in (("fp16", "NHWC"), ("fp16", "NCHW"), ("bf16", "NHWC"), ("fp32", "NHWC"), ("fp32", "NCHW")):
        for *sizes, stride in (*layers, *((stem,) if dtype != "bf16" else ())):
            name = " ".join(map(str, (dtype, layout, *sizes, stride)))
            yield name, conv(dtype, layout, *sizes, stride=stride)
        if dtype != "bf16":
            yield f"{dtype} {layout} grouped", conv(dtype, layout, 128, 128, 56, 3, 32)
            for side in (56, 7):
                yield f"{dtype} {layout} depthwise {side}", conv(dtype, layout, 96, 96, side, 3, 96)
    yield "tf32 NHWC", conv("fp32", "NHWC", 256, 256, 14, 3, precision="tf32")
    yield "fp64 NCHW", conv("fp64", "NCHW", 64, 64, 56, 3)
    norm = [("mul", new("fp16", 128)), ("bias", new("fp16", 128)), "relu"]
    yield "fp16 NHWC after a batch norm", conv("fp16", "NHWC", 128, 32, 28, 3, prologue=norm)
    x, w = new("int8", 8, 28, 28, 128), new("int8", 128, 3, 3, 128)
    yield "int8 NHWC", ask(gk.conv2d, x, w, padding=1, layout="NHWC")


def _conv1d() -> Asked:
    for dtype in ("fp16", "fp32"):
        operands = new(dtype, 1, 80, 3000), new(dtype, 512, 80, 3), new(dtype, 512)
        yield f"{dtype} NCW", ask(gk.conv1d, *operands, padding=1, activation="gelu")


def _conv_transpose2d() -> Asked:
    for dtype, layout in product(("fp16", "fp32"), ("NHWC", "NCHW")):
        for taps, padding in ((2, 0), (4, 1)):
            operands = image(dtype, layout, 8, 256, 14, 14), image(dtype, layout, 256, 128, taps, taps)
            how = {"stride": 2, "padding": padding, "layout": layout}
            yield f"{dtype} {layout} {taps}", ask(gk.conv_transpose2d, *operands, **how)


def _pool(function: Callable[..., Any], *arguments: Any) -> Asked:
    for dtype, layout in product(("fp16", "fp32"), ("NHWC", "NCHW")):
        for side in (112, 14) if arguments else (7,):
            x = image(dtype, layout, 8, 64, side, side)
            yield f"{dtype} {layout} {side}", ask(function, x, *arguments, layout=layout)


def _along(function: Callable[..., Any], dtype: str, shape: tuple[int, ...], axis: int | None) -> tuple[str, Any]:
    return f"{dtype} {'x'.join(map(str, shape))} {axis}", ask(function, new(dtype, *shape), axis=axis)


def _reduction(name: str) -> Asked:
    """Rows of a table; its columns, everything, and what is not aligned, of the types that programs do that with."""
    everywhere = ((4096, 1024), 0), ((1 << 20,), None), ((1 << 24,), None), ((333, 1001), 1), ((333, 1001), 0)
    for dtype in ("fp16", "bf16", "fp32", "fp64"):
        if dtype == "bf16" and name not in ("sum", "max", "mean"):
            continue
        for shape, axis in (((4096, 1024), 1), *(everywhere if dtype in ("fp32", "fp64") else ())):
            yield _along(getattr(gk, name), dtype, shape, axis)


def _softmax(function: Callable[..., Any], *of_fp32: tuple[tuple[int, ...], int]) -> Asked:
    for dtype in (*FLOATS, "fp64"):
        for shape, axis in (((4096, 1024), -1), *(of_fp32 if dtype == "fp32" else ())):
            yield _along(function, dtype, shape, axis)


def _norm(function: Callable[..., Any], vectors: int) -> Asked:
    for dtype, k in product((*FLOATS, "fp64"), (768, 4096)):
        yield f"{dtype} {k}", ask(function, new(dtype, 128, k), k, *[new(dtype, k)] * vectors)


def _attention() -> Asked:
    for dtype in HALVES:
        for queries, keys in ((128, 128), (1024, 1024), (1, 1024)):
            heads = new(dtype, 1, 32, queries, 128), new(dtype, 1, 8, keys, 128), new(dtype, 1, 8, keys, 128)
            for causal in (False, True):
                name = f"{dtype} {queries} {keys} {'causal' if causal else 'plain'}"
                yield name, ask(gk.attention, *heads, causal=causal)
        heads = new(dtype, 8, 128, 12, 64).swapaxes(1, 2)
        yield f"{dtype} heads after tokens", ask(gk.attention, heads, heads, heads)
        long = new(dtype, 1, 32, 8192, 128), new(dtype, 1, 8, 8192, 128), new(dtype, 1, 8, 8192, 128)
        yield f"{dtype} window", ask(gk.attention, *long, causal=True, window=(4095, None))
        wide = new(dtype, 1, 16, 1024, 256), new(dtype, 1, 8, 1024, 256), new(dtype, 1, 8, 1024, 256)
        yield f"{dtype} soft cap", ask(gk.attention, *wide, causal=True, softcap=50.0)
        packed = new(dtype, 1, 32, 4096, 128), new(dtype, 1, 8, 4096, 128), new(dtype, 1, 8, 4096, 128)
        yield f"{dtype} packed", ask(gk.attention, *packed, causal=True, sizes=[512] * 8)
        pages = new(dtype, 2048, 8, 16, 128), new(dtype, 2048, 8, 16, 128)
        table = np.arange(2048, dtype="int32").reshape(16, 128)
        cache = {"causal": True, "key_sizes": [2048] * 16, "block_table": table}
        yield f"{dtype} pages", ask(gk.attention, new(dtype, 16, 32, 1, 128), *pages, **cache)
        yield f"{dtype} packed pages", ask(gk.attention, new(dtype, 1, 32, 1024, 128), *pages, sizes=[64] * 16, **cache)
    for kind, shape in product(("bool", "fp16"), ((8, 1, 1, 128), (1, 1, 128, 128))):
        heads = [new("fp16", 8, 12, 128, 64)] * 3
        yield f"fp16 mask {kind} {'x'.join(map(str, shape))}", ask(gk.attention, *heads, mask=new(kind, *shape))


_FUNCTIONS: dict[str, Callable[[], Asked]] = {
    "matmul": _matmul,
    "linear": _linear,
    "grouped_matmul": _grouped_matmul,
    "scaled_matmul": _scaled_matmul,
    "prepack": _prepack,
    "einsum": _einsum,
    "tensordot": lambda: _pair(gk.tensordot, (64, 16, 16), (16, 16, 64)),
    "dot": lambda: _pair(gk.dot, (256, 256), (256, 256)),
    "vdot": lambda: _pair(gk.vdot, (1 << 20,), (1 << 20,)),
    "inner": lambda: _pair(gk.inner, (256, 256), (256, 256)),
    "outer": lambda: _pair(gk.outer, (1024,), (1024,)),
    "define": _define,
    "conv2d": _conv2d,
    "conv1d": _conv1d,
    "conv_transpose2d": _conv_transpose2d,
    "max_pool2d": lambda: _pool(gk.max_pool2d, 3, 2, 1),
    "avg_pool2d": lambda: _pool(gk.avg_pool2d, 2),
    "global_avg_pool2d": lambda: _pool(gk.global_avg_pool2d),
    **{
        name: partial(_reduction, name)
        for name in (
            "sum",
            "max",
            "mean",
            "min",
            "argmax",
            "argmin",
            "prod",
            "var",
            "std",
            "nansum",
            "nanmean",
            "nanmax",
            "nanmin",
            "norm",
            "logsumexp",
        )
    },
    "softmax": lambda: _softmax(gk.softmax, ((8, 128, 1024), 1)),
    "log_softmax": lambda: _softmax(gk.log_softmax),
    "layer_norm": lambda: _norm(gk.layer_norm, 2),
    "rms_norm": lambda: _norm(gk.rms_norm, 1),
    "attention": _attention,
}
