"""Readers for rows of convolutions, pooling, reductions, attention and declared operators; see product_readers.py."""

from __future__ import annotations

import re
from typing import Any

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator, shape_row
from gensor_kernels.operators.attention import attention, forms, sequences
from gensor_kernels.operators.products.sum_of_products import SumOfProducts
from gensor_kernels.operators.rows import views as rows
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv, conv_prologue, depthwise, pooling

from .columns import Element, Line, Read, before, element, steps

#: Element-wise operators: an epilogue over a copy.
ELEMENTWISE = ("relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
ROWS = (
    *("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_var", "l2_norm", "logsumexp"),
    *("argmax", "argmin", "softmax", "log_softmax", "layernorm", "rmsnorm"),
)
PADS = ("pad_top", "pad_bottom", "pad_left", "pad_right")


def convolution(line: Line) -> Read:
    """Read conv2d, grouped_conv2d, depthwise_conv2d, conv2d_transpose, and conv1d as h = r = 1."""
    op, types = line.text("op").lower(), element(line)
    sizes: dict[str, Any] = _sizes(line, "w c k_out s" if op == "conv1d" else "h w c k_out r s")
    layout = line.choice("layout", ("nhwc", "nchw"), "nhwc")
    if op == "depthwise_conv2d":
        sizes["groups"] = sizes["c"]
    if op != "conv2d_transpose" and sizes["groups"] == sizes["c"] == sizes["k_out"]:
        workload = _depthwise(line, sizes, layout, types)
        listed = before(line)
        return Read(conv_prologue.workload(listed, workload) if listed else workload)
    weights = line.choice("weights", conv.WEIGHTS, "krsc" if layout == "nhwc" else "kcrs")
    forms_of: dict[str, Any] = {"layout": layout, "weights": weights, "transposed": op == "conv2d_transpose"}
    epilogue, listed = steps(line), before(line)
    workload = conv.workload(**sizes, **forms_of, **types.named, epilogue=epilogue, fold=not listed)
    if listed:
        workload = conv_prologue.workload(listed, workload)
    return Read(types.accumulated(workload))


def _depthwise(line: Line, sizes: dict[str, int], layout: str, types: Element) -> Workload:
    own = {name: size for name, size in sizes.items() if name not in ("groups", "k_out")}
    return depthwise.workload(**own, layout=layout, dtype=types.dtype, out=types.out, epilogue=steps(line))


def pool(line: Line) -> Read:
    """Read max_pool2d, avg_pool2d, global_avg_pool2d; an adaptive average of one output is a global one."""
    op, types = line.text("op").lower(), element(line)
    layout = line.choice("layout", ("nhwc", "nchw"), "nhwc")
    shape = {name: line.integer(name, 1 if name == "n" else None) for name in "nhwc"}
    parameters: dict[str, int] = {}
    if op == "adaptive_avg_pool2d":
        op = "global_avg_pool2d"
    if op != "global_avg_pool2d":
        sizes = _sizes(line, "r s")
        parameters = {name: sizes[name] for name in ("r", "s", *PADS)}
        for name, window in (("stride_h", "r"), ("stride_w", "s")):
            parameters[name] = line.integer(name, sizes[window])
        parameters["ceil_mode"] = int(line.choice("ceil_mode", "01", "0"))
        if op == "avg_pool2d":
            parameters["count_include_pad"] = int(line.choice("count_include_pad", "01", "0"))
    workload = pooling.workload(op, **shape, layout=layout, dtype=types.dtype, epilogue=steps(line), **parameters)
    return Read(workload)


def reduction(line: Line) -> Read:
    """Read reductions, softmax and norms over `axes` of `shape`; element-wise operators have no axes."""
    op, types = line.text("op").lower(), element(line)
    shape, more = _numbers(line, "shape", "x"), steps(line)
    try:
        if op in ELEMENTWISE:
            return Read(rows.workload("elementwise", shape, (), types.dtype, out=types.out, epilogue=(op, *more)))
        axes = _numbers(line, "axes", ";") if line.text("axes", "") else [len(shape) - 1]
        return Read(rows.workload(op, shape, axes, types.dtype, out=types.out, epilogue=more))
    except ValueError as error:
        raise line.fail("axes", str(error)) from None


def attend(line: Line) -> Read:
    """Read attention: `queries` by `keys` (equal by default), `heads` over `kv_heads`, a window, a soft cap."""
    queries = line.integer("queries")
    keys, batch = line.integer("keys", queries), line.integer("batch", 1)
    return Read(attention.workload(queries, keys, batch=batch, **_attention(line)))


def attend_sequences(line: Line) -> Read:
    """Read attention of `batch` sequences: `queries` and `keys` of all together, or a `table` of pages each."""
    op, queries, page = line.text("op").lower(), line.integer("queries"), 0
    ragged, batch = "ragged" in op, line.integer("batch", 1)
    if "paged" in op:
        page, table = line.integer("page_size", 16), line.integer("table")
        if page == 0 or page & (page - 1):
            raise UnsupportedError(f"pages of {page} keys: kernels take powers of two")
        keys = line.integer("pages", batch * table) * page
    else:
        keys, table = line.integer("keys", queries), 0
    more = _attention(line)
    workload = sequences.workload(batch, queries, keys, ragged=ragged, page_size=page, table=table, **more)
    return Read(workload)


def _attention(line: Line) -> dict[str, Any]:
    """Return what all forms of attention have in common: heads, types, diagonal, window, soft cap, epilogue."""
    left, right = (line.integer(name) if line.text(name, "") else None for name in forms.WINDOW)
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?", line.text("softcap", "0")):
        raise line.fail("softcap", f"'{line.text('softcap')[:40]}' is not a number of 0 or more")
    types, heads = element(line), line.integer("heads", 1)
    found: dict[str, Any] = {"heads": heads, "kv_heads": line.integer("kv_heads", heads), "head": line.integer("head")}
    found |= {"dtype": types.dtype, "out": types.out, "causal": line.choice("causal", forms.CAUSAL, "none")}
    softcap = float(line.text("softcap", "0")) > 0
    return found | {"window": (left, right), "softcap": softcap, "epilogue": steps(line)}


def whole(line: Line) -> Read:
    """Read a row of a recording: the operator's own sizes, layouts and alignments."""
    try:
        return Read(shape_row.workload_of(line.text("op").lower(), line.cells))
    except shape_row.CellError as error:
        raise line.fail(error.column, error.reason) from None


def declared(line: Line) -> Read:
    """Read an operator that is a plain sum of products; its columns are its declared sizes."""
    given = operator(line.text("op").lower())
    if not isinstance(given, SumOfProducts):
        raise UnsupportedError(f"shapes files have no reader for {given.name}")
    types = element(line)
    sizes = {name: line.integer(name) for name in given.size_names}
    workload = given.workload(sizes, types.dtype, types.out, types.math).with_epilogue(steps(line))
    return Read(types.accumulated(workload))


def _sizes(line: Line, required: str) -> dict[str, int]:
    """Return the columns of a window; sizes in `required` have no default."""
    ones = ("n", "h", "r", "stride_h", "stride_w", "dilation_h", "dilation_w", "groups")
    defaults = dict.fromkeys(PADS, 0) | dict.fromkeys(ones, 1)
    names = [*dict.fromkeys((*required.split(), *defaults))]
    return {name: line.integer(name, None if name in required.split() else defaults[name]) for name in names}


def _numbers(line: Line, column: str, between: str) -> list[int]:
    text = line.text(column)
    if not re.fullmatch(rf"[0-9]{{1,10}}({between}[0-9]{{1,10}}){{0,31}}", text):
        raise line.fail(column, f"'{text[:40]}' is not a list of whole numbers such as 2{between}3")
    return [int(number) for number in text.split(between)]
