"""How rows of shapes files become Workloads, one function per kind of operator."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from gensor_kernels import shape_row
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import (
    attention,
    conv,
    conv_prologue,
    depthwise,
    gated,
    matmul,
    matmul_prologue,
    normed,
    operator,
    pooling,
    quantised,
    ragged,
)
from gensor_kernels.operators import rows_views as rows
from gensor_kernels.operators.sum_of_products import SumOfProducts
from gensor_kernels.operators.workload import Workload

from . import layouts
from .cells import Line
from .row_cells import Element, Read, before, element, second, steps

T = TypeVar("T")
GATES = {"rnn_vanilla": 1, "rnn_gru": 3, "rnn_lstm": 4}
#: Element-wise operators: an epilogue over a plain copy.
ELEMENTWISE = ("relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
ROWS = (
    *("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_var", "l2_norm", "logsumexp"),
    *("argmax", "argmin", "softmax", "log_softmax", "layernorm", "rmsnorm"),
)
PADS = ("pad_top", "pad_bottom", "pad_left", "pad_right")


def matrix(line: Line) -> Read:
    """matmul, batched_matmul; gemv has m = 1 or n = 1; a grouped_matmul of equal groups is a batch. With a gate in the
    epilogue (swiglu), n are the columns of both matrices, twice those of the result."""
    m, n, k = (line.integer(axis) for axis in "mnk")
    batch = line.integer("batch", 1)
    if line.text("op").lower() == "gemv" and 1 not in (m, n):
        raise line.fail("op", f"gemv needs m = 1 or n = 1, and this row has m = {m}, n = {n}")
    trans_a, trans_b = (line.choice(column, "01", "0") == "1" for column in ("trans_a", "trans_b"))
    types = element(line)
    if line.text("group", "") or line.text("dtype_b", "").lower() == "int4":
        return quantised_weights(line, types)
    dtype, dtype_b = types.dtype, second(line, types)
    if line.choice("order", ("row", "col"), "row") == "col":
        # A column-major problem is the row-major one transposed: C^T = op(B)^T op(A)^T.
        m, n, trans_a, trans_b, dtype, dtype_b = n, m, trans_b, trans_a, dtype_b, dtype
    gate, behind = _fused(line, gated.parse)
    listed = before(line)
    if listed and (gate or _fused(line, normed.parse)[0]):
        raise UnsupportedError("no operator of this version has a prologue beside a gate or a norm")
    if gate:
        if dtype_b != dtype:
            raise UnsupportedError(f"no operator of this version gates a product of {dtype} and {dtype_b}")
        if n % 2 or line.text("order", "row").lower() == "col":
            raise line.fail("epilogue", f"'{gate}' takes a row-major product of an even number of columns, not n = {n}")
        workload = gated.workload(
            *(gate, m, n // 2, k),
            batch=batch,
            dtype=types.dtype,
            out=types.out,
            math=types.math,
            trans_a=trans_a,
            trans_b=trans_b,
            epilogue=behind,
        )
        return Read(types.accumulated(workload))
    norm, place, both = _fused(line, normed.parse)
    if norm and line.text("order", "row").lower() == "col":
        raise line.fail("epilogue", f"'{norm}' is of the rows of a row-major product")
    workload = matmul.workload(
        *(m, n, k),
        batch=batch,
        dtype=dtype,
        dtype_b=dtype_b,
        out=types.out,
        math=types.math,
        trans_a=trans_a,
        trans_b=trans_b,
        epilogue=both if norm else steps(line),
    )
    workload = types.accumulated(layouts.laid_out(line, workload))
    if listed:
        if line.text("order", "row").lower() == "col":
            raise line.fail("prologue", "operations are applied to the first operand of a row-major product")
        return Read(matmul_prologue.workload(listed, workload))
    return Read(normed.normed(norm, workload, place) if norm else workload)


def _fused(line: Line, parse: Callable[[str], T]) -> T:
    """What an epilogue has of gates or norms."""
    try:
        return parse(line.text("epilogue", "none"))
    except UnsupportedError as error:
        raise line.fail("epilogue", error.reason) from None


def groups(line: Line) -> Read:
    """ragged_matmul: m rows in all, of `groups` that differ in theirs; `trans_b`: B is stored (groups, n, k)."""
    types = element(line)
    workload = ragged.workload(
        *(line.integer(axis) for axis in ("groups", "m", "n", "k")),
        dtype=types.dtype,
        out=types.out,
        math=types.math,
        trans_b=line.choice("trans_b", "01", "0") == "1",
        epilogue=steps(line),
    )
    return Read(types.accumulated(workload))


def quantised_weights(line: Line, types: Element) -> Read:
    """A product with weights (n, k) of dtype_b int8 or int4: scales per `group` of k (0: per row), perhaps `zeros`."""
    for column, only in (("trans_a", "0"), ("trans_b", "1"), ("order", "row"), ("batch", "1")):
        if line.text(column, only).lower() != only:
            raise line.fail(column, f"quantised weights need {only} here")
    group = int(line.choice("group", map(str, quantised.GROUPS), "0"))
    workload = quantised.workload(
        *(line.integer(axis) for axis in "mnk"),
        bits=int(line.choice("dtype_b", ("int8", "int4"), None).removeprefix("int")),
        group=group,
        zeros=line.choice("zeros", "01", "0") == "1",
        dtype=types.dtype,
        out=types.out,
        epilogue=steps(line),
    )
    return Read(types.accumulated(workload))


def recurrent(line: Line) -> Read:
    """The product of each time step: (batch, hidden) by the weights (gates x hidden, hidden), transposed."""
    hidden, batch, count = (line.integer(name) for name in ("hidden", "batch", "timesteps"))
    types, gates = element(line), GATES[line.text("op").lower()]
    workload = matmul.workload(
        *(batch, gates * hidden, hidden),
        dtype=types.dtype,
        out=types.out,
        math=types.math,
        trans_b=True,
        epilogue=steps(line),
    )
    return Read(types.accumulated(workload), repeats=count)


def convolution(line: Line) -> Read:
    """conv2d, grouped_conv2d; a conv1d has h = r = 1; conv2d_transpose; one channel per group is depthwise."""
    op, types = line.text("op").lower(), element(line)
    sizes = _sizes(line, "w c k_out s" if op == "conv1d" else "h w c k_out r s")
    layout = line.choice("layout", ("nhwc", "nchw"), "nhwc")
    if op == "depthwise_conv2d":
        sizes["groups"] = sizes["c"]
    try:
        if op != "conv2d_transpose" and sizes["groups"] == sizes["c"] == sizes["k_out"]:
            return Read(_depthwise(line, sizes, layout, types))
        workload = conv.workload(
            **sizes,
            layout=layout,
            weights=line.choice("weights", conv.WEIGHTS, "krsc" if layout == "nhwc" else "kcrs"),
            dtype=types.dtype,
            out=types.out,
            math=types.math,
            epilogue=steps(line),
            transposed=op == "conv2d_transpose",
        )
    except ValueError as error:
        raise line.fail("op", str(error)) from None
    listed = before(line)
    if listed:
        if workload.operator != "conv2d":
            raise UnsupportedError(f"no operator of this version has a prologue in front of {workload.operator}")
        workload = conv_prologue.workload(listed, workload)
    return Read(types.accumulated(workload))


def _depthwise(line: Line, sizes: dict[str, int], layout: str, types: Element) -> Workload:
    own = {name: size for name, size in sizes.items() if name not in ("groups", "k_out")}
    return depthwise.workload(**own, layout=layout, dtype=types.dtype, out=types.out, epilogue=steps(line))


def pool(line: Line) -> Read:
    """max_pool2d, avg_pool2d, global_avg_pool2d; an adaptive average of one output is a global one."""
    op, types = line.text("op").lower(), element(line)
    layout = line.choice("layout", ("nhwc", "nchw"), "nhwc")
    shape = {name: line.integer(name, 1 if name == "n" else None) for name in "nhwc"}
    parameters: dict[str, int] = {}
    if op == "adaptive_avg_pool2d":
        op = "global_avg_pool2d"
    if op != "global_avg_pool2d":
        sizes = _sizes(line, "r s")
        parameters = {name: sizes[name] for name in ("r", "s", *PADS)}
        parameters |= {
            f"stride_{side}": line.integer(f"stride_{side}", sizes[x]) for side, x in (("h", "r"), ("w", "s"))
        }
        parameters["ceil_mode"] = int(line.choice("ceil_mode", "01", "0"))
        if op == "avg_pool2d":
            parameters["count_include_pad"] = int(line.choice("count_include_pad", "01", "0"))
    try:
        workload = pooling.workload(op, **shape, layout=layout, dtype=types.dtype, epilogue=steps(line), **parameters)
    except ValueError as error:
        raise line.fail("op", str(error)) from None
    return Read(workload)


def reduction(line: Line) -> Read:
    """Reductions, softmax and norms over `axes` of `shape`; element-wise operators have no axes."""
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
    """attention without a mask: `queries` by `keys` (as many by default) of `heads` over `kv_heads`."""
    types, heads, queries = element(line), line.integer("heads", 1), line.integer("queries")
    try:
        workload = attention.workload(
            queries,
            line.integer("keys", queries),
            batch=line.integer("batch", 1),
            heads=heads,
            kv_heads=line.integer("kv_heads", heads),
            head=line.integer("head"),
            dtype=types.dtype,
            out=types.out,
            causal=line.choice("causal", attention.CAUSAL, "none"),
            epilogue=steps(line),
        )
    except ValueError as error:
        raise line.fail("op", str(error)) from None
    return Read(workload)


def whole(line: Line) -> Read:
    """A row that a recording wrote: sizes, layouts and alignments of the operator's own."""
    try:
        return Read(shape_row.workload_of(line.text("op").lower(), line.cells))
    except shape_row.CellError as error:
        raise line.fail(error.column, error.reason) from None


def declared(line: Line) -> Read:
    """An operator that is a sum of products and nothing more: its columns are the sizes it declares."""
    given = operator(line.text("op").lower())
    if not isinstance(given, SumOfProducts):
        raise UnsupportedError(f"no reader of shapes files is for {given.name}")
    types = element(line)
    sizes = {name: line.integer(name) for name in given.size_names}
    workload = given.workload(sizes, types.dtype, types.out, types.math).with_epilogue(steps(line))
    return Read(types.accumulated(workload))


def _sizes(line: Line, required: str) -> dict[str, int]:
    """The columns of a window; those in `required` have no default."""
    ones = ("n", "h", "r", "stride_h", "stride_w", "dilation_h", "dilation_w", "groups")
    defaults = dict.fromkeys(PADS, 0) | dict.fromkeys(ones, 1)
    names = [*dict.fromkeys((*required.split(), *defaults))]
    return {name: line.integer(name, None if name in required.split() else defaults[name]) for name in names}


def _numbers(line: Line, column: str, between: str) -> list[int]:
    text = line.text(column)
    if not re.fullmatch(rf"[0-9]{{1,10}}({between}[0-9]{{1,10}}){{0,31}}", text):
        raise line.fail(column, f"'{text[:40]}' is not a list of whole numbers such as 2{between}3")
    return [int(number) for number in text.split(between)]
