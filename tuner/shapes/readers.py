"""Readers for rows of products, convolutions, pooling, reductions, attention and declared operators."""

from __future__ import annotations

import re
from typing import Any

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator, shape_row
from gensor_kernels.operators.attention import attention, forms, sequences
from gensor_kernels.operators.pointwise import views as pointwise
from gensor_kernels.operators.products import block_scaled, gated, matmul, matmul_prologue, normed, quantised, ragged
from gensor_kernels.operators.products.sum_of_products import SumOfProducts
from gensor_kernels.operators.rows import views as rows
from gensor_kernels.operators.rows.scans import OPERATORS as SCANS
from gensor_kernels.operators.rows.scans import SAME_BITS
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv, conv_prologue, depthwise, pooling

from .columns import Element, Line, Read, before, element, laid_out, second, steps

#: Gates of a recurrent cell: the number of products that share one input.
GATES = {"rnn_vanilla": 1, "rnn_gru": 3, "rnn_lstm": 4}


def matrix(line: Line) -> Read:
    """Read matmul, batched_matmul, gemv, grouped_matmul (a batch); with a gate, n counts the columns of both B."""
    sizes, types = _product_sizes(line), element(line)
    if line.text("group", "") or line.text("dtype_b", "").lower() in ("int4", *quantised.FORMATS):
        return quantised_weights(line, types)
    gate, after = line.parsed("epilogue", gated.parse)
    norm, place, both = line.parsed("epilogue", normed.parse)
    listed = before(line)
    if listed and (gate or norm):
        raise UnsupportedError("no operator of this version has a prologue beside a gate or a norm")
    if gate:
        return _gated_product(line, sizes, types, gate, after)
    workload = _product(line, sizes, types, both if norm else steps(line))
    if _column_major(line) and norm:
        raise line.fail("epilogue", f"'{norm}' normalises the rows of a row-major product")
    if _column_major(line) and listed:
        raise line.fail("prologue", "operations apply to the first operand of a row-major product")
    if listed:
        return Read(matmul_prologue.workload(listed, workload))
    return Read(normed.with_norm(norm, workload, place) if norm else workload)


def _product_sizes(line: Line) -> dict[str, Any]:
    sizes = {axis: line.integer(axis) for axis in "mnk"} | {"batch": line.integer("batch", 1)}
    if line.text("op").lower() == "gemv" and 1 not in (sizes["m"], sizes["n"]):
        raise line.fail("op", f"gemv needs m = 1 or n = 1, and this row has m = {sizes['m']}, n = {sizes['n']}")
    return sizes | {column: line.choice(column, "01", "0") == "1" for column in ("trans_a", "trans_b")}


def _column_major(line: Line) -> bool:
    return line.choice("order", ("row", "col"), "row") == "col"


def _gated_product(line: Line, sizes: dict[str, Any], types: Element, gate: str, after: tuple[str, ...]) -> Read:
    other = second(line, types)
    if other != types.dtype:
        raise UnsupportedError(f"no operator of this version gates a product of {types.dtype} and {other}")
    if sizes["n"] % 2 or _column_major(line):
        wanted = f"a row-major product of an even number of columns, not n = {sizes['n']}"
        raise line.fail("epilogue", f"'{gate}' takes {wanted}")
    halved = sizes | {"n": sizes["n"] // 2}
    workload = gated.workload(gate, **halved, **types.named, epilogue=after)
    return Read(types.accumulated(workload))


def _product(line: Line, sizes: dict[str, Any], types: Element, epilogue: tuple[str, ...]) -> Workload:
    stored = sizes | {"dtype": types.dtype, "dtype_b": second(line, types)}
    if _column_major(line):  # the transposed row-major product: C^T = op(B)^T op(A)^T
        mirrored = {"m": "n", "n": "m", "trans_a": "trans_b", "trans_b": "trans_a", "dtype": "dtype_b"}
        mirrored["dtype_b"] = "dtype"
        stored |= {name: stored[other] for name, other in mirrored.items()}
    workload = matmul.workload(**stored, out=types.out, math=types.math, epilogue=epilogue)
    return types.accumulated(laid_out(line, workload))


def groups(line: Line) -> Read:
    """Read ragged_matmul: m rows in total over `groups` of different sizes; with `trans_b`, B is (groups, n, k)."""
    types = element(line)
    sizes = (line.integer(axis) for axis in ("groups", "m", "n", "k"))
    trans_b = line.choice("trans_b", "01", "0") == "1"
    workload = ragged.workload(*sizes, **types.named, trans_b=trans_b, epilogue=steps(line))
    return Read(types.accumulated(workload))


def quantised_weights(line: Line, types: Element) -> Read:
    """Read a product with int8 or int4 weights (n, k): scales per `group` of k (0: per row), optional `zeros`; or with
    weights in a block-scaled format, `dtype_b`."""
    for column, only in (("trans_a", "0"), ("trans_b", "1"), ("order", "row"), ("batch", "1")):
        if line.text(column, only).lower() != only:
            raise line.fail(column, f"quantised weights need {only} here")
    sizes, after = {axis: line.integer(axis) for axis in "mnk"}, steps(line)
    if (form := line.text("dtype_b", "").lower()) in quantised.FORMATS:
        out = types.out or types.dtype
        made = quantised.formatted(**sizes, form=form, dtype=types.dtype, out=out, epilogue=after)
        return Read(types.accumulated(made))
    group = int(line.choice("group", map(str, quantised.GROUPS), "0"))
    workload = quantised.workload(
        **sizes,
        bits=int(line.dtype("dtype_b", ("int8", "int4"), None).removeprefix("int")),
        group=group,
        zeros=line.choice("zeros", "01", "0") == "1",
        dtype=types.dtype,
        out=types.out,
        epilogue=after,
    )
    return Read(types.accumulated(workload))


def scaled(line: Line) -> Read:
    """Read matmul_block_scaled: 8-bit floats A (m, k) and B (n, k), each with a scale per block of 128 elements; or
    both in a block-scaled format, `dtype`."""
    types = element(line, {name: form.element for name, form in quantised.FORMATS.items()})
    if types.name in quantised.FORMATS:
        m, n, k = (line.integer(axis) for axis in "mnk")
        made = quantised.formatted(m, n, k, types.name, out=types.out or "float32", epilogue=steps(line))
        return Read(types.accumulated(made))
    workload = block_scaled.workload(
        *(line.integer(axis) for axis in "mnk"),
        dtype=types.dtype,
        dtype_b=second(line, types),
        out=types.out or "float32",
        epilogue=steps(line),
    )
    return Read(types.accumulated(workload))


def recurrent(line: Line) -> Read:
    """Read the product of each time step: (batch, hidden) by the transposed weights (gates x hidden, hidden)."""
    hidden, batch, count = (line.integer(name) for name in ("hidden", "batch", "timesteps"))
    types, gates = element(line), GATES[line.text("op").lower()]
    sizes = batch, gates * hidden, hidden
    workload = matmul.workload(*sizes, **types.named, trans_b=True, epilogue=steps(line))
    return Read(types.accumulated(workload), repeats=count)


#: Element-wise operators: an epilogue over a copy.
ELEMENTWISE = ("relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
ROWS = (
    *("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_var", "l2_norm", "logsumexp"),
    *("argmax", "argmin", "softmax", "log_softmax", "layernorm", "rmsnorm", "cumsum", "cumprod"),
)
#: Integers besides int8: an operator that does not take them says so.
INTEGERS = {name: name for name in ("int32", "int64")}
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
    """Read max_pool2d, avg_pool2d, global_avg_pool2d; an adaptive average of one output is a global one, which is a
    mean."""
    op, types = line.text("op").lower(), element(line)
    layout = line.choice("layout", ("nhwc", "nchw"), "nhwc")
    shape = {name: line.integer(name, 1 if name == "n" else None) for name in "nhwc"}
    if op in ("global_avg_pool2d", "adaptive_avg_pool2d"):
        image = [shape[axis] for axis in layout]
        axes = [layout.index(axis) for axis in "hw"]
        return Read(rows.workload("reduce_mean", image, axes, types.dtype, epilogue=steps(line)))
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
    """Read reductions, scans, softmax and norms over `axes` of `shape`; element-wise operators have no axes."""
    op = line.text("op").lower()
    types = element(line, INTEGERS | SAME_BITS if op in SCANS else INTEGERS)
    shape, more = _numbers(line, "shape", "x"), steps(line)
    try:
        if op in ELEMENTWISE:
            return Read(rows.workload("elementwise", shape, (), types.dtype, out=types.out, epilogue=(op, *more)))
        axes = _numbers(line, "axes", ";") if line.text("axes", "") else [len(shape) - 1]
        return Read(rows.workload(op, shape, axes, types.dtype, out=types.out, epilogue=more))
    except ValueError as error:
        raise line.fail("axes", str(error)) from None


def program(line: Line) -> Read:
    """Read an element-wise `program` of arrays whose shapes `shape` has, joined by `;`, and which broadcast."""
    try:
        shapes = [[int(extent) for extent in each.split("x")] for each in line.text("shape").split(";")]
        return Read(pointwise.workload(line.text("program"), shapes))
    except ValueError as error:
        raise line.fail("shape", str(error)) from None


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
    """Return what all forms of attention have in common: heads, types, diagonal, window, soft cap, sinks, logarithms,
    epilogue."""
    left, right = (line.integer(name) if line.text(name, "") else None for name in forms.WINDOW)
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?", line.text("softcap", "0")):
        raise line.fail("softcap", f"'{line.text('softcap')[:40]}' is not a number of 0 or more")
    types, heads = element(line), line.integer("heads", 1)
    found: dict[str, Any] = {"heads": heads, "kv_heads": line.integer("kv_heads", heads), "head": line.integer("head")}
    found |= {"dtype": types.dtype, "out": types.out, "causal": line.choice("causal", forms.CAUSAL, "none")}
    found |= {"window": (left, right), "softcap": float(line.text("softcap", "0")) > 0, "epilogue": steps(line)}
    known = {shape_row.NAMES[each]: each for each in attention.SINKS}
    sinks = known[line.dtype("sinks", known, None)] if line.text("sinks", "") else ""
    return found | {"sinks": sinks, "lse": line.choice("lse", "01", "0") == "1"}


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
