"""Recordings of every public function read back as the Workloads of its calls; so do rows of any operator."""

import csv
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels import record
from gensor_kernels.dispatch.observe import record_file
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.operators import MODULES, shape_row
from gensor_kernels.operators.windows import depthwise
from gensor_tuner.shapes.columns import DTYPES
from gensor_tuner.shapes.reader import read_shapes
from tests.doubles.kernels import put, runtime_of
from tests.families.workloads import contract
from tests.project.test_packaging import ROOT


@pytest.fixture
def host(monkeypatch):
    """A device whose array library is NumPy, without kernels."""
    return put(monkeypatch, runtime_of())


def image(dtype=np.float32, shape=(2, 8, 9, 9)):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def calls():
    """(name, call, operators of its rows)."""
    x, last = image(), image(shape=(2, 9, 9, 8))
    w, half = image(shape=(16, 8, 3, 3)), image(np.float16, (4, 33, 64))
    brain = half.astype(ml_dtypes.bfloat16)
    heads = image(np.float16, (2, 4, 33, 64))
    keep = np.ones((33, 33), bool)
    bias = np.ones(16, np.float32)
    yield "conv2d", lambda: gk.conv2d(x, w, bias, padding=1, activation="relu"), ["conv2d"]
    yield "conv2d last", lambda: gk.conv2d(last, w.transpose(0, 2, 3, 1), stride=2, layout="NHWC"), ["conv2d"]
    yield "conv2d copied", lambda: gk.conv2d(x, w[:, :, ::-1]), ["conv2d"]
    yield "conv2d 1x1", lambda: gk.conv2d(x, w[:, :, :1, :1]), ["matmul"]
    yield "grouped", lambda: gk.conv2d(x, w[:, :4], groups=2), ["conv2d"]
    yield "conv1d", lambda: gk.conv1d(x[:, :, 0], w[:, :, 0]), ["conv2d"]
    yield "transposed", lambda: gk.conv_transpose2d(x, w[:8], stride=2), ["conv2d_transpose"]
    yield "depthwise", lambda: gk.conv2d(x, w[:8, :1], groups=8, padding=(1, 0)), ["depthwise_conv2d"]
    yield "max_pool2d", lambda: gk.max_pool2d(x, 3, 2, 1, ceil_mode=True), ["max_pool2d"]
    yield "avg_pool2d", lambda: gk.avg_pool2d(last, 2, layout="NHWC"), ["avg_pool2d"]
    yield "global", lambda: gk.global_avg_pool2d(x.astype(np.float16)), ["global_avg_pool2d"]
    yield "sum", lambda: gk.sum(x, axis=(0, 2)), ["reduce_sum"]
    yield "sum of bytes", lambda: gk.sum((x * 9).astype(np.int8), axis=-1), ["reduce_sum"]
    yield "max of integers", lambda: gk.max((x * 9).astype(np.int32), axis=1), ["reduce_max"]
    yield "strided mean", lambda: gk.mean(half[:, ::2, ::2], axis=1, keepdims=True), ["reduce_mean"]
    yield "var", lambda: gk.var(brain, axis=2, ddof=1), ["reduce_var"]
    yield "argmin", lambda: gk.argmin(half, axis=0), ["argmin"]
    yield "norm", lambda: gk.norm(half), ["l2_norm"]
    yield "logsumexp", lambda: gk.logsumexp(x, axis=1), ["logsumexp"]
    yield "softmax", lambda: gk.softmax(half, axis=1), ["softmax"]
    yield "log_softmax", lambda: gk.log_softmax(half), ["log_softmax"]
    ones = np.ones(64, np.float16)
    yield "layer_norm", lambda: gk.layer_norm(half, 64, ones, ones), ["layernorm"]
    yield "rms_norm", lambda: gk.rms_norm(half, 64), ["rmsnorm"]
    yield "attention", lambda: gk.attention(heads, heads[:, ::2], heads[:, ::2], causal=True), ["attention"]
    yield "masked", lambda: gk.attention(heads, heads, heads, keep), ["attention_masked"]
    yield "biased", lambda: gk.attention(heads, heads, heads, keep.astype(np.float32)), ["attention_biased"]
    yield "windowed", lambda: gk.attention(heads, heads, heads, window=(1, 0)), ["attention_windowed"]
    yield "capped", lambda: gk.attention(heads, heads, heads, keep, softcap=5.0), ["attention_masked_capped"]
    yield "einsum", lambda: gk.einsum("bhid,bhjd->bhij", heads, heads), ["matmul"]
    yield "einsum copied", lambda: gk.einsum("iji,jk->ik", image(shape=(8, 9, 8)), image(shape=(9, 5))), ["matmul"]
    bytes_, types = np.full((16, 256), 0x38, np.uint8), {"dtype_a": "float8_e4m3fn", "dtype_b": "float8_e5m2"}
    scales = np.ones((16, 2), np.float32), np.ones((2, 1), np.float32)
    yield "scaled", lambda: gk.scaled_matmul(bytes_, bytes_.T, *scales, **types), ["matmul_block_scaled"]
    w8, w4 = np.ones((24, 64), np.int8), np.ones((24, 32), np.uint8)
    yield "int8 weights", lambda: gk.linear(half, w8, scales=half[0, :24, 0]), ["matmul_int8"]
    quarters = {"scales": np.ones((24, 2), np.float16), "zeros": np.ones((24, 2), np.uint8)}
    yield "int4 weights", lambda: gk.linear(half, w4, **quarters), ["matmul_int4_zeros"]
    yield "mixed", lambda: gk.matmul(half[0], bytes_[:8].reshape(64, 32), dtype_b="float8_e5m2"), ["matmul"]
    yield "chain", lambda: gk.einsum("ij,jk,kl->il", *(image(shape=(16, 16)) for _ in "abc")), ["matmul"]
    scores = gk.define("b h i d, b h j d -> b h i j", epilogue=[("scale", 0.5), "relu"])
    yield "define", lambda: scores(heads, heads), ["matmul"]
    norm = [("mul", np.ones(64, np.float16)), ("bias", np.ones(64, np.float32)), "relu"]
    weights = half[0, :16]
    yield "prologue", lambda: gk.linear(half, weights, prologue=norm, activation="silu"), ["matmul_prologue2"]
    yield "prologue of an array", lambda: gk.linear(half, weights, prologue=["tanh", ("mul", half)]), ["matmul"]
    per_channel = [("bias", np.ones(8, np.float32)), "gelu"]
    yield "conv2d prologue", lambda: gk.conv2d(x, w, padding=1, prologue=per_channel), ["conv2d_prologue1"]


def test_every_public_function_is_recorded(host, tmp_path):
    for name, call, operators in calls():
        path = tmp_path / f"{name}.csv"
        with record(path):
            first, second = call(), call()
        np.testing.assert_array_equal(first, second, err_msg=name)
        rows = read_shapes(path)
        assert rows and not [row for row in rows if row.error or row.unsupported], name
        assert sorted({row.workload.operator for row in rows}) == operators, name
        steps = 2 if name == "chain" else 1
        assert sum(row.count for row in rows) == 2 * steps and {row.notes["tier"] for row in rows} == {"4"}, name
        assert not any(note.startswith(("layout", "align", "dtype")) for row in rows for note in row.notes), name


def test_the_recorded_workload_is_the_one_of_explain(host, tmp_path):
    """For operands and results of any layout and alignment, and epilogues."""
    half, byte = image(np.float16, (64, 64)), image(shape=(48, 33)).astype(np.int8)
    batched = image(shape=(3, 1, 20, 24)), image(shape=(2, 24, 16))
    x, w = image(np.float16, (1, 6, 6, 16)), image(np.float16, (16, 3, 3, 16))
    products = [
        ((half.T, np.repeat(half, 2, 1)[:, ::2]), {}),
        ((half[1:, 1:60], half[:59, 3:]), {}),  # odd addresses and pitches
        ((half[::-1], half), {}),
        ((half, half, np.empty((64, 64), np.float16, order="F")), {}),
        ((half, half), {"epilogue": [("bias", half[0]), "gelu", "tanh"]}),
        ((half, half), {"epilogue": [("mask", half > 0, -1.0), "gelu_tanh"], "dtype": np.float32}),
        ((byte, byte.T), {"dtype": np.int32}),
        (batched, {"precision": "tf32"}),
    ]
    calls = [(gk.matmul, *each) for each in products]
    calls += [(gk.softmax, (x,), {}), (gk.conv2d, (x, w), {"layout": "NHWC"})]
    wanted = {gk.explain(function, *arrays, **more).workload for function, arrays, more in calls}
    with record(tmp_path / "shapes.csv"):
        for function, arrays, more in calls:
            function(*arrays, **more)
    rows = read_shapes(tmp_path / "shapes.csv")
    assert {row.workload.key() for row in rows} == wanted and len(wanted) == len(calls)


def test_calls_without_a_workload_are_unsupported_rows(host, tmp_path):
    with record(tmp_path / "shapes.csv"):
        gk.sum(np.ones((2, 3)) > 0, axis=1)
        gk.conv2d(image(np.int64), image(np.int64, (4, 8, 3, 3)))
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
