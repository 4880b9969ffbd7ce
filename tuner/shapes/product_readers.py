"""Readers for rows of matrix products: plain, gated, normalised, ragged, quantised, scaled, recurrent."""

from __future__ import annotations

from typing import Any

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.products import block_scaled, gated, matmul, matmul_prologue, normed, quantised, ragged
from gensor_kernels.operators.types.workload import Workload

from .columns import Element, Line, Read, before, element, laid_out, second, steps

#: Gates of a recurrent cell: the number of products that share one input.
GATES = {"rnn_vanilla": 1, "rnn_gru": 3, "rnn_lstm": 4}


def matrix(line: Line) -> Read:
    """Read matmul, batched_matmul, gemv, grouped_matmul (a batch); with a gate, n counts the columns of both B."""
    sizes, types = _sizes(line), element(line)
    if line.text("group", "") or line.text("dtype_b", "").lower() == "int4":
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


def _sizes(line: Line) -> dict[str, Any]:
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
    """Read a product with int8 or int4 weights (n, k): scales per `group` of k (0: per row), optional `zeros`."""
    for column, only in (("trans_a", "0"), ("trans_b", "1"), ("order", "row"), ("batch", "1")):
        if line.text(column, only).lower() != only:
            raise line.fail(column, f"quantised weights need {only} here")
    group = int(line.choice("group", map(str, quantised.GROUPS), "0"))
    workload = quantised.workload(
        *(line.integer(axis) for axis in "mnk"),
        bits=int(line.dtype("dtype_b", ("int8", "int4"), None).removeprefix("int")),
        group=group,
        zeros=line.choice("zeros", "01", "0") == "1",
        dtype=types.dtype,
        out=types.out,
        epilogue=steps(line),
    )
    return Read(types.accumulated(workload))


def scaled(line: Line) -> Read:
    """Read matmul_block_scaled: 8-bit floats A (m, k) and B (n, k), each with a scale per block of 128 elements."""
    types = element(line)
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
