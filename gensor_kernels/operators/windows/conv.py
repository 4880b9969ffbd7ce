"""Convolution: y[n, oh, ow, k] = sum over r, s, c of x[n, oh stride - pad + r dilation, ..., c] w[k, r, s, c].

Grouped, strided, dilated, padded by any amount per side, and transposed (the gradient in x, as in
torch.nn.functional.conv_transpose2d).  Channels and filters are split into groups (g, c) and (g, k) in the declaration.
Layouts name an operand's axes from the outermost to the innermost in memory: x "nhwc" or "nchw"; w "krsc", "rsck" (as
in TensorFlow) or "kcrs" (as in PyTorch); y "nhwk" or "nkhw".  Kernels see an implicit matrix product (implicit GEMM,
conv_product.py), without a transposed copy or an im2col buffer.

A convolution of 1 x 1 without stride and padding is a matrix product and becomes a matmul: see :func:`workload`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.products.matmul import default_output
from gensor_kernels.operators.types import epilogue as epilogues
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, facts
from gensor_kernels.operators.types.workload import Workload

from . import conv_folded
from .conv_product import WEIGHTS, Convolution
from .sides import PADS, SIDES, STEPS, check_outputs, check_steps, declare_outputs, output_size

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.affine import Quotient
    from gensor_kernels.operators.expression.expression import Axis, Expression


#: Sizes of a Workload with their default values.
DEFAULTS = {**STEPS, "groups": 1, **PADS}


def _declare(transposed: bool, **p: int) -> Expression:
    """Declare the expression of the module's formula under the parameters ``p``."""
    from gensor_kernels.operators.expression.expression import SUM, Axis, Expression, axes, tensor

    n, h, w, c, k, r, s = axes("n h w c k_out r s")
    g = Axis("g", p["groups"])
    cg, kg = Axis("cg", c // p["groups"]), Axis("kg", k // p["groups"])
    declare_side = _declare_transposed_outputs if transposed else declare_outputs
    (oh, ih), (ow, iw) = declare_side(p, "h", h, r), declare_side(p, "w", w, s)
    x = tensor("x", n, h, w, g, cg).pad()
    weights = tensor("w", g, kg, r, s, cg)
    return Expression("y", (n, oh, ow, g, kg), x[n, ih, iw, g, cg] * weights[g, kg, r, s, cg], SUM)


def _declare_transposed_outputs(p: Mapping[str, int], side: str, image: Axis, tap: Axis) -> tuple[Axis, Quotient]:
    """As declare_outputs: a position is valid where it is whole."""
    from gensor_kernels.operators.expression.affine import Axis

    stride, dilation, (_, before, after) = p[f"stride_{side}"], p[f"dilation_{side}"], SIDES[side]
    more = 1 + p[f"output_padding_{side}"] - p[before] - p[after]
    output = Axis(f"o{side}", (image - 1) * stride + dilation * (tap - 1) + more)
    return output, (output + p[before] - dilation * tap).exactly(stride)


def declare(**parameters: int) -> Expression:
    """Declare a convolution."""
    return _declare(False, **parameters)


def declare_transposed(**parameters: int) -> Expression:
    """Declare a transposed convolution; output_padding_h and _w are added to one side of the output."""
    return _declare(True, **parameters)


_ONES = {"n": 1, "h": 1, "w": 1, "c": 1, "k_out": 1, "r": 1, "s": 1, **DEFAULTS}
TRANSPOSED = (*DEFAULTS, "output_padding_h", "output_padding_w")
OPERATORS: Mapping[str, Convolution] = {
    "conv2d": Convolution("conv2d", declare, tuple(DEFAULTS), tuple(_ONES.items())),
    "conv2d_transpose": Convolution(
        "conv2d_transpose",
        declare_transposed,
        TRANSPOSED,
        tuple({**_ONES, "output_padding_h": 0, "output_padding_w": 0}.items()),
    ),
}


def workload(
    *,
    n: int,
    h: int,
    w: int,
    c: int,
    k_out: int,
    r: int,
    s: int,
    layout: str = "nhwc",
    weights: str | None = None,
    dtype: str = "float32",
    out: str | None = None,
    math: str = "ieee",
    epilogue: str | Iterable[str] = (),
    transposed: bool = False,
    fold: bool = True,
    **parameters: int,
) -> Workload:
    """Return the Workload of contiguous operands at 16-byte aligned addresses; of a plain matrix product, of matmul.

    ``layout`` is that of x and y, ``weights`` that of w: "krsc" or "kcrs" by default.  ``dtype`` is the type of x and
    w, ``out`` that of y.  ``fold`` lets adjacent columns become channels, and bands of rows images (conv_folded.py).
    ``parameters`` are stride_h, stride_w, pad_top, pad_bottom, pad_left, pad_right, dilation_h, dilation_w and groups;
    with ``transposed`` also output_padding_h and output_padding_w.  ValueError for sizes that do not fit,
    UnsupportedError for types and layouts that are not served.
    """
    sizes = dict(n=n, h=h, w=w, c=c, k_out=k_out, r=r, s=s) | DEFAULTS | parameters
    if transposed:
        sizes = {"output_padding_h": 0, "output_padding_w": 0} | sizes
    check(sizes, transposed)
    weights = weights or ("krsc" if layout == "nhwc" else "kcrs")
    out = out or default_output(dtype)
    if not transposed and is_product(sizes):
        return _product(sizes, layout, weights, dtype, out, math, epilogue)
    layouts = {"x": layout, "w": weights, "y": "nhwk" if layout == "nhwc" else "nkhw"}
    by = conv_folded.fold(sizes, dtype) if fold and not transposed and conv_folded.foldable(sizes, layouts) else 1
    if by > 1:
        sizes, layouts = conv_folded.fold_columns(sizes, by), conv_folded.folded_layouts(layouts)
    if fold and not transposed:
        sizes = conv_folded.split_bands(sizes, conv_folded.bands(sizes, layouts))
    return from_layouts(
        sizes,
        layouts=layouts,
        dtypes={"x": dtype, "w": dtype, "y": out},
        alignment={"x": 16, "w": 16, "y": 16},
        math=math,
        epilogue=epilogue,
        transposed=transposed,
    )


def from_layouts(
    sizes: Mapping[str, int],
    *,
    layouts: Mapping[str, str],
    dtypes: Mapping[str, str],
    alignment: Mapping[str, int],
    math: str = "ieee",
    epilogue: str | Iterable[str] = (),
    transposed: bool = False,
) -> Workload:
    """Return the Workload of operands in these layouts.

    Addresses and outer strides are multiples of ``alignment`` bytes; the innermost extent may reduce the alignment
    class.
    """
    dtype = dtypes["x"]
    if dtype != dtypes["w"] or dtype not in ACCUMULATORS:
        both = f"{dtype} and {dtypes['w']}"
        raise UnsupportedError(f"a convolution takes one dtype of {', '.join(ACCUMULATORS)}, got {both}: cast")
    if math == "tf32" and dtype != "float32":
        raise UnsupportedError(f"math {math!r} needs float32 operands, not {dtype}")
    name = "conv2d_transpose" if transposed else "conv2d"
    inner = inner_extents(sizes, layouts, transposed)
    classes = {}
    for operand, given in alignment.items():
        size = facts(dtypes[operand]).itemsize
        steps = (given, inner[operand] * size)
        classes[operand] = next((x for x in (16, 8, 4) if x > size and not any(step % x for step in steps)), size)
    return Workload(
        operator=name,
        sizes=tuple(sizes.items()),
        dtypes=tuple(dtypes.items()),
        accumulator=ACCUMULATORS[dtype],
        math=math,
        layout=tuple(layouts.items()),
        alignment=tuple(classes.items()),
        epilogue=epilogues.parse(epilogue) if isinstance(epilogue, str) else tuple(epilogue),
    )


def inner_extents(sizes: Mapping[str, int], layouts: Mapping[str, str], transposed: bool) -> dict[str, int]:
    """Return the elements of the run along which each operand is read or written in vectors; 1 for single elements."""
    groups = sizes["groups"]
    c, k = sizes["c"] // groups, sizes["k_out"] // groups
    oh, ow = output_size(sizes, "h", transposed), output_size(sizes, "w", transposed)
    return {
        # Neighbouring pixels are not neighbours under a window.
        "x": c if layouts["x"] == "nhwc" else 1,
        "w": k if layouts["w"] == "rsck" else sizes["r"] * sizes["s"] * c,
        "y": k if layouts["y"] == "nhwk" else oh * ow,
    }


def check(sizes: Mapping[str, int], transposed: bool = False) -> None:
    """Raise ValueError for sizes that are not those of a convolution."""
    unknown = set(sizes) - set(OPERATORS["conv2d_transpose" if transposed else "conv2d"].size_names)
    if unknown:
        raise ValueError(f"a convolution has no size {', '.join(sorted(unknown))}")
    check_steps(sizes)
    for name in ("c", "k_out"):
        if sizes[name] % sizes["groups"]:
            raise ValueError(f"{name} = {sizes[name]} is no multiple of groups = {sizes['groups']}")
    for side in "hw":
        extra = sizes.get(f"output_padding_{side}", 0)
        if extra and extra >= max(sizes[f"stride_{side}"], sizes[f"dilation_{side}"]):
            raise ValueError(f"output_padding_{side} is {extra}: expected less than the stride or the dilation")
    check_outputs(sizes, "filter", transposed)


def is_product(sizes: Mapping[str, int]) -> bool:
    """Return whether a convolution of these sizes is a matrix product of pixels and channels."""
    ones = ("r", "s", "stride_h", "stride_w", "groups")
    return all(sizes[name] == 1 for name in ones) and not any(sizes[name] for name in PADS)


def _product(
    sizes: Mapping[str, int], layout: str, weights: str, dtype: str, out: str, math: str, steps: str | Iterable[str]
) -> Workload:
    pixels, c, k = sizes["h"] * sizes["w"], sizes["c"], sizes["k_out"]
    names: Sequence[str] = epilogues.parse(steps) if isinstance(steps, str) else tuple(steps)
    common = {"dtype": dtype, "out": out, "math": math, "epilogue": names}
    if layout == "nhwc":
        return matmul.workload(sizes["n"] * pixels, k, c, trans_b=weights != "rsck", **common)  # type: ignore[arg-type]
    transposed = weights == "rsck"
    return matmul.workload(k, pixels, c, batch=sizes["n"], trans_a=transposed, **common)  # type: ignore[arg-type]


__all__ = ["DEFAULTS", "OPERATORS", "WEIGHTS", "check", "from_layouts", "inner_extents", "is_product", "workload"]
