"""The `op` column of a shapes file: which operator a row is, and which of its columns say what.

A reader turns a row into a Workload, or gives the reason why this version has none. To serve another op, add its reader
to READERS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import MODULES, conv, matmul, operator
from gensor_kernels.operators.dtypes import facts
from gensor_kernels.operators.sum_of_products import SumOfProducts
from gensor_kernels.operators.workload import Workload

from . import layouts
from .cells import Line
from .dtype_names import ACCUMULATORS, DTYPES, FOREIGN, OUTPUTS

FOREIGN_EPILOGUES = ("swiglu", "geglu", "softmax", "layernorm")
#: What every op reads.
COMMON = ("op", "dtype", "acc", "out", "epilogue", "count", "unsupported")
_MATRIX = ("batch", "m", "n", "k", "trans_a", "trans_b", "order", *layouts.COLUMNS)
_WINDOW = (
    *("n", "h", "w", "c", "k_out", "r", "s", "stride_h", "stride_w", "dilation_h", "dilation_w", "groups"),
    *("pad_top", "pad_bottom", "pad_left", "pad_right", "layout", "weights"),
)
_RECURRENT = ("hidden", "batch", "timesteps")


@dataclass(frozen=True)
class Read:
    """A row's workload, or why this version has none; and how often one call of the row runs it."""

    workload: Workload | None = None
    unsupported: str | None = None
    repeats: int = 1


@dataclass(frozen=True)
class Element:
    """What the columns dtype, acc and out say."""

    dtype: str
    out: str
    math: str
    accumulator: str


def read(line: Line) -> Read:
    """What one row asks for; RowError where it says what is no op, or not what its op needs."""
    op = line.choice("op", READERS, None, {*NOT_SERVED, *declared_ops()})
    if op in NOT_SERVED:
        return Read(unsupported=f"this version serves {', '.join(READERS)}, not {op}")
    if line.text("unsupported", ""):  # a recorded call that no kernel takes, whatever its other cells
        return Read(unsupported=line.text("unsupported"))
    name = line.choice("dtype", DTYPES, "fp32", FOREIGN)
    try:
        if name in FOREIGN:
            raise UnsupportedError(f"no kernel family of this version serves {name} operands")
        return READERS.get(op, _declared)(line)
    except UnsupportedError as error:
        return Read(unsupported=error.reason)


def declared_ops() -> frozenset[str]:
    """Operators that no reader is for: their columns are the sizes they declare."""
    return frozenset(MODULES) - set(READERS) - NOT_SERVED


def columns(op: str) -> tuple[str, ...]:
    """The columns an op reads; others are kept as notes."""
    return COLUMNS[op] if op in COLUMNS else (*COMMON, *operator(op).size_names)


def _declared(line: Line) -> Read:
    """An operator that is a sum of products and nothing more."""
    declared = operator(line.text("op").lower())
    if not isinstance(declared, SumOfProducts):
        raise UnsupportedError(f"no reader of shapes files is for {declared.name}")
    element = _element(line)
    sizes = {name: line.integer(name) for name in declared.size_names}
    workload = declared.workload(sizes, element.dtype, element.out, element.math).with_epilogue(_epilogue(line))
    return Read(_accumulated(line, workload, element))


def _element(line: Line) -> Element:
    name = line.choice("dtype", DTYPES, "fp32")
    dtype, math = DTYPES[name]
    outputs = OUTPUTS | {name: dtype}
    out = outputs[line.choice("out", outputs, "int32" if dtype == "int8" else name)]
    return Element(dtype, out, math, _accumulator(line, dtype))


def _accumulated(line: Line, workload: Workload, element: Element) -> Workload:
    """The workload, where its accumulator is at least the one asked for."""
    found = facts(workload.accumulator).part or workload.accumulator
    if found != element.accumulator and element.accumulator != "float32":
        name = line.choice("dtype", DTYPES, "fp32")
        raise UnsupportedError(f"no kernel family of this version accumulates {name} in {element.accumulator}")
    return workload


def _matrix(line: Line) -> Read:
    """matmul, batched_matmul; gemv has m = 1 or n = 1; a grouped_matmul of equal groups is a batch."""
    m, n, k = (line.integer(axis) for axis in "mnk")
    batch = line.integer("batch", 1)
    if line.text("op").lower() == "gemv" and 1 not in (m, n):
        raise line.fail("op", f"gemv needs m = 1 or n = 1, and this row has m = {m}, n = {n}")
    trans_a, trans_b = (line.choice(column, "01", "0") == "1" for column in ("trans_a", "trans_b"))
    if line.choice("order", ("row", "col"), "row") == "col":
        # A column-major problem is the row-major one transposed: C^T = op(B)^T op(A)^T.
        m, n, trans_a, trans_b = n, m, trans_b, trans_a
    element = _element(line)
    workload = matmul.workload(
        *(m, n, k),
        batch=batch,
        dtype=element.dtype,
        out=element.out,
        math=element.math,
        trans_a=trans_a,
        trans_b=trans_b,
        epilogue=_epilogue(line),
    )
    return Read(layouts.laid_out(line, _accumulated(line, workload, element)))


GATES = {"rnn_vanilla": 1, "rnn_gru": 3, "rnn_lstm": 4}


def _recurrent(line: Line) -> Read:
    """The product of each time step: (batch, hidden) by the weights (gates x hidden, hidden), transposed."""
    hidden, batch, steps = (line.integer(name) for name in ("hidden", "batch", "timesteps"))
    element, gates = _element(line), GATES[line.text("op").lower()]
    workload = matmul.workload(
        *(batch, gates * hidden, hidden),
        dtype=element.dtype,
        out=element.out,
        math=element.math,
        trans_b=True,
        epilogue=_epilogue(line),
    )
    return Read(_accumulated(line, workload, element), repeats=steps)


def _sizes(line: Line, required: str) -> dict[str, int]:
    """The columns of a window; those in `required` have no default."""
    ones = {name: 1 for name in ("n", "h", "r", "stride_h", "stride_w", "dilation_h", "dilation_w", "groups")}
    defaults = {**dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 0), **ones}
    names = [name for name in _WINDOW if name not in ("layout", "weights", "k_out")]
    return {name: line.integer(name, None if name in required.split() else defaults.get(name)) for name in names}


def _convolution(line: Line) -> Read:
    """conv2d, grouped_conv2d; a conv1d has h = r = 1; conv2d_transpose. With one channel per group: depthwise."""
    op = line.text("op").lower()
    sizes = _sizes(line, "w c s" if op == "conv1d" else "h w c r s")
    sizes["k_out"] = line.integer("k_out")
    layout = line.choice("layout", ("nhwc", "nchw"), "nhwc")
    element = _element(line)
    try:
        workload = conv.workload(
            **sizes,
            layout=layout,
            weights=line.choice("weights", conv.WEIGHTS, "krsc" if layout == "nhwc" else "kcrs"),
            dtype=element.dtype,
            out=element.out,
            math=element.math,
            epilogue=_epilogue(line),
            transposed=op == "conv2d_transpose",
        )
    except ValueError as error:
        raise line.fail("op", str(error)) from None
    return Read(_accumulated(line, workload, element))


#: How the row of each op is read, and the columns it reads; others are kept as notes.
READERS: dict[str, Callable[[Line], Read]] = {
    **dict.fromkeys(("matmul", "batched_matmul", "grouped_matmul", "gemv"), _matrix),
    **dict.fromkeys(GATES, _recurrent),
    **dict.fromkeys(("conv2d", "grouped_conv2d", "conv1d", "conv2d_transpose"), _convolution),
}
_COLUMNS = {_matrix: _MATRIX, _recurrent: _RECURRENT, _convolution: _WINDOW}
NOT_SERVED = frozenset(
    {
        *("depthwise_conv2d", "avg_pool2d", "max_pool2d", "adaptive_avg_pool2d", "global_avg_pool2d"),
        *("softmax", "layernorm", "rmsnorm", "reduce_sum", "reduce_mean", "reduce_max", "argmax", "l2_norm", "relu"),
    }
)
COLUMNS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(NOT_SERVED, COMMON),
    **{op: (*COMMON, *_COLUMNS[reader]) for op, reader in READERS.items()},
}


def _epilogue(line: Line) -> tuple[str, ...]:
    """Operation names of the `epilogue` column; UnsupportedError for a known one that this version lacks."""
    text = line.text("epilogue", "none")
    foreign = [word for word in FOREIGN_EPILOGUES if word in text.split("_")]
    if foreign:
        raise UnsupportedError(f"no operator of this version declares the epilogue '{foreign[0]}'")
    try:
        return layouts.operations(text)
    except UnsupportedError as error:
        raise line.fail("epilogue", error.reason) from None


def _accumulator(line: Line, dtype: str) -> str:
    """`acc` is a minimum: fp32 accumulation serves acc=fp16, and nothing serves acc=fp64 on fp16 operands."""
    default = {"float64": "fp64", "int8": "int32"}.get(dtype, "fp32")
    return ACCUMULATORS[line.choice("acc", ACCUMULATORS, default)]
