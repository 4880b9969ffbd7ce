"""Recordings of every public function read back as the Workloads of its calls; so do rows of any operator."""

import csv
from contextlib import suppress

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels import record
from gensor_kernels.dispatch.observe import record_file
from gensor_kernels.dispatch.recurrent import layers
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.operators import MODULES, shape_row
from gensor_kernels.operators.windows import depthwise
from gensor_tuner.shapes.columns import DTYPES
from gensor_tuner.shapes.reader import read_shapes
from tests.dispatch.calls import CALLS, IMAGE, TAPS
from tests.doubles.kernels import put, runtime_of
from tests.families.workloads import contract
from tests.project.test_packaging import ROOT


@pytest.fixture
def host(monkeypatch):
    """A device whose array library is NumPy, without kernels."""
    return put(monkeypatch, runtime_of())


#: Calls that no kernel serves, or that take further steps of the library.
OTHERS = {"prepack", "einsum of one", "outer", "norm of a matrix", "norm of a matrix, 2", "logsumexp, weighted"}
OTHERS |= {"quantize", "dequantize", "lstm", "lstm, both directions", "gru"}


@pytest.mark.parametrize("name", [name for name in CALLS if name not in OTHERS])
def test_the_recorded_workload_is_the_one_of_explain(host, tmp_path, name):
    """For every public function, and operands of any layout and alignment."""
    function, arguments, keywords = CALLS[name]
    path = tmp_path / "shapes.csv"
    with record(path):
        first, second = (function(*arguments, **keywords) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    rows, why = read_shapes(path), gk.explain(function, *arguments, **keywords)
    steps = why.steps or [why]
    assert {row.workload.key() for row in rows} == {each.workload for each in steps}
    assert sum(row.count for row in rows) == 2 * len(steps) and {row.notes["tier"] for row in rows} == {"4"}
    assert not any(note.startswith(("layout", "align", "dtype")) for row in rows for note in row.notes)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_layer_is_recorded_as_its_product_and_its_recurrence(host, tmp_path, kind, monkeypatch):
    """Without a recording, and without a kernel, its steps are products."""
    function, arguments, keywords = CALLS[kind]
    with record(tmp_path / "shapes.csv"):
        wanted = function(*arguments, **keywords)[0]
    operators = {row.workload.operator for row in read_shapes(tmp_path / "shapes.csv")}
    assert operators == {"matmul", f"recurrent_{kind}"}
    monkeypatch.setattr(layers, "_serve", None)
    np.testing.assert_allclose(function(*arguments, **keywords)[0], wanted, rtol=1e-6, atol=1e-6)


def test_calls_without_a_workload_are_unsupported_rows(host, tmp_path):
    with record(tmp_path / "shapes.csv"):
        gk.sum(np.ones((2, 3)) > 0, axis=1)
        gk.conv2d(IMAGE.astype("int64"), TAPS.astype("int64"))
        gk.einsum("i,j->ij", np.ones(3, np.longdouble), np.ones(2, np.longdouble))
        gk.max(np.ones((0, 3)), axis=1)
        gk.define("ij,jk->ik")(np.ones((2, 3), np.uint8), np.ones((3, 2), np.uint8))
    rows = read_shapes(tmp_path / "shapes.csv")
    with (tmp_path / "shapes.csv").open(newline="") as file:
        ops = {line["op"] for line in csv.DictReader(file)}
    assert {"reduce_sum", "conv2d"} <= ops
    assert not [row.error for row in rows if row.error]
    assert all(row.unsupported for row in rows if row.workload is None)


# ---- Workloads of any operator


def test_a_row_of_any_operator_reads_back_as_its_workload(tmp_path):
    examples = [row.workload for row in read_shapes(ROOT / "examples" / "every_operator.csv")]
    wanted = examples + [each for family in FAMILIES for _, each in contract(family).served]
    assert {each.operator for each in wanted} == set(MODULES)
    for steps in (("relu",), ("scale", "gelu", "tanh")):
        for each in examples:
            with suppress(UnsupportedError, ValueError):
                wanted.append(each.with_epilogue(steps))
    path = tmp_path / "shapes.csv"
    for each in wanted:
        path.unlink(missing_ok=True)
        record_file.update(path, {record_file.workload_row(each, record_file.Served(3, "h200")): 7})
        (row,) = read_shapes(path)
        assert row.error is None and row.workload == each
        assert row.notes == {"tier": "3", "part": "h200"}


def test_bad_cells_are_reported_with_their_column(tmp_path):
    wanted = depthwise.workload(n=1, h=9, w=9, c=3, r=3, s=3, dtype="float16")
    path = tmp_path / "shapes.csv"
    for column, value, reason in (
        ("layout_x", "hwcn", "layout"),
        ("align_x", "3", "not one of"),
        ("align_x", "16", "divides too little"),
        ("w", "-3", "whole number"),
        ("stride_h", "0", "zero"),
        ("dtype", "fp61", "did you mean fp64, fp16"),
        ("out", "", "missing"),
    ):
        cells = {name: str(each) for name, each in shape_row.cells_of(wanted).items()} | {column: value}
        path.write_text(",".join(cells) + "\n" + ",".join(cells.values()) + "\n")
        (row,) = read_shapes(path)
        assert row.workload is None and reason in row.error and "shapes.csv:2" in row.error
    assert DTYPES.items() <= shape_row.DTYPES.items()  # those of rows written by hand
