"""shapes.csv: strict, located errors, and every public matmul row readable."""

import io
import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.operators.products import block_scaled, quantised
from gensor_kernels.operators.rows import views
from gensor_kernels.operators.shape_row import cells_of
from gensor_tuner.shapes.reader import ShapesError, main, op_of, read_shapes

SHARED = Path(__file__).resolve().parents[4] / "shared" / "workloads"


def read(tmp_path, text):
    path = tmp_path / "shapes.csv"
    path.write_text(text)
    return read_shapes(path)


def test_the_example_explains_its_columns_and_every_row_is_read(tmp_path, gensor_tune):
    code, out, _ = gensor_tune("shapes", "--example")
    assert gensor_tune("shapes", "--example", "-o", "{}/shapes.csv")[0] == code == 0
    assert (tmp_path / "shapes.csv").read_text() == out
    lines, rows = out.splitlines(), read_shapes(tmp_path / "shapes.csv")
    assert [row.error for row in rows] == [None] * len(rows) and all(row.count and row.name for row in rows)
    assert {"matmul", "gemv", "conv2d", "softmax", "layernorm", "attention"} <= {row.cells["op"] for row in rows}
    above = " ".join(line for line in lines if line.startswith("# "))
    header = next(line for line in lines if not line.startswith("#")).split(",")
    explained = {name.removesuffix("s") for name in re.findall(r"\w+", above)}
    unexplained = {name for name in header if not {*name.split("_"), name.rstrip("s")} & explained}
    assert not unexplained, unexplained


def test_products_column_major_or_gated_are_those_of_kernels(tmp_path):
    (row,) = read(tmp_path, "op,m,n,k,trans_a,trans_b,order\nmatmul,64,128,256,1,0,col\n")
    assert (row.workload.size["m"], row.workload.size["n"]) == (128, 64)
    assert row.workload.layouts["a"] == "k" and row.workload.layouts["b"] == "k"
    rows = read(tmp_path, "op,m,n,k,trans_b,epilogue\nmatmul,8,64,32,1,bias_swiglu_add\nmatmul,8,63,32,1,swiglu\n")
    workload = rows[0].workload
    assert (workload.operator, workload.size["n"], workload.epilogue) == ("bias_swiglu", 32, ("add",))
    assert workload.layouts["b"] == "k" and "even number of columns" in rows[1].error
    workload = views.workload("softmax", (4, 8), (1,), "float16")
    cells = {name: str(cell) for name, cell in cells_of(workload).items()}
    spelt = cells | {"dtype": "Half", "out": "float16", "acc": "single"}
    rows = [",".join(each.values()) for each in (cells, spelt)]
    first, second = read(tmp_path, "\n".join([",".join(cells), *rows]))
    assert first.workload == second.workload == workload


ELEMENTS = (
    (("fp16", "float16", "half", "f16", "FP16", "Half"), "float16", "ieee"),
    (("bf16", "bfloat16", "BFloat16"), "bfloat16", "ieee"),
    (("fp32", "float32", "single", "f32", ""), "float32", "ieee"),
    (("fp64", "float64", "double", "f64"), "float64", "ieee"),
    (("fp8_e4m3", "float8_e4m3fn", "e4m3", "fp8-e4m3", "float8_e4m3"), "float8_e4m3fn", "ieee"),
    (("fp8_e5m2", "float8_e5m2", "e5m2"), "float8_e5m2", "ieee"),
    (("fp64_ozaki", "float64_ozaki", "double_ozaki"), "float64", "ozaki"),
    (("tf32", "TF32"), "float32", "tf32"),
    (("complex64_3m", "csingle_3m"), "complex64", "3m"),
)


def test_products_with_scales_per_block(tmp_path):
    plain, spelt, halves, doubles, four = read(
        tmp_path,
        "op,m,n,k,dtype,out,dtype_b,epilogue\nmatmul_block_scaled,8,64,528,fp8_e4m3,,,\n"
        "scaled_matmul,8,64,528,e4m3,bf16,e5m2,bias_relu\nmatmul_block_scaled,8,64,528,fp16,,,\n"
        "matmul_block_scaled,8,64,528,fp8_e4m3,fp64,,\nscaled_matmul,8,64,512,nvfp4,bf16,,scale\n",
    )
    assert plain.workload == block_scaled.workload(8, 64, 528, out="float32")
    types = {"dtype_b": "float8_e5m2", "out": "bfloat16", "epilogue": ("bias", "relu")}
    assert spelt.workload == block_scaled.workload(8, 64, 528, **types)
    assert halves.unsupported == "scales of blocks belong to 8-bit floats, not float16 and float16"
    assert "not float64" in doubles.unsupported
    assert four.workload == quantised.formatted(8, 64, 512, "nvfp4", epilogue=("scale",))


MISSPELT = {
    "op,m,n,k,Dtype": "column 'Dtype' is unknown: did you mean dtype?",
    "op,m,n,k,transb": "column 'transb' is unknown: did you mean trans_b?",
    "Op,m,n,k": "column 'Op' is unknown: did you mean op?",
    "operator,m,n,k": "column 'operator' is unknown: did you mean op?",
    "op,M,N,K,Dtype,Batch": "columns 'M', 'N', 'K', 'Dtype', 'Batch' are unknown: did you mean m, n, k, dtype, batch?",
    "op,m,n,k,dtype_c": "column 'dtype_c' is unknown: did you mean out?",
    "op,m,n,k,activation": "column 'activation' is unknown: did you mean epilogue?",
    "op,m,n,k,dtype,DTYPE": "column 'DTYPE' is unknown: did you mean dtype?",
}


def test_only_columns_near_those_that_the_operators_read_are_refused(tmp_path):
    for header, reason in MISSPELT.items():
        with pytest.raises(ShapesError) as error:
            read(tmp_path, f"{header}\nmatmul,1,2,3" + ",1" * (header.count(",") - 3))
        assert str(error.value) == f"{tmp_path / 'shapes.csv'}:1: {reason}"
    conv = "conv2d,8,8,4,4,3,3,1"
    for column, near in ("padding", "pad_top, pad_bottom, pad_left, pad_right"), ("stride", "stride_h, stride_w"):
        with pytest.raises(ShapesError, match=rf"'{column}' is unknown: did you mean {near}\?"):
            read(tmp_path, f"op,h,w,c,k_out,r,s,{column}\n{conv}")
    (row,) = read(tmp_path, "op,m,n,k,padding\nmatmul,1,2,3,1")
    assert row.notes == {"padding": "1"}
    rows = ("conv2d,,8,8,8,4,4,3,3,,", "conv2d,8,1,8,8,4,4,3,3,2,", "conv2d,8,8,8,8,4,4,3,3,2,2")
    first, second, both = read(tmp_path, "\n".join(["op,n,batch,h,w,c,k_out,r,s,group,groups", *rows]))
    assert "column 'batch': conv2d does not read it: did you mean n?" in first.error
    assert "column 'group': conv2d does not read it: did you mean groups?" in second.error
    assert both.error is None and both.notes == {"batch": "8", "group": "2"}


@pytest.mark.parametrize(
    ("pandas", "plain"),
    [
        ("op,m,n,k,trans_b,any_size,count\nmatmul,16.0,8.0,4.00,1.0,0.0,2.0", None),
        ("op,shape,axes\nsoftmax,4x5,1.0\nsoftmax,7.0,-1.0", "op,shape,axes\nsoftmax,4x5,1\nsoftmax,7,-1"),
        ("op,n,h,w,c,k_out,r,s,batch\nconv2d,1.0,8.0,8,4,4,3,3,1.0", None),
    ],
)
def test_an_integer_may_be_written_as_pandas_writes_it(tmp_path, pandas, plain):
    """A column with empty cells has floats in pandas."""
    written, meant = read(tmp_path, pandas), read(tmp_path, plain or re.sub(r"\.0+", "", pandas))
    for ours, theirs in zip(written, meant, strict=True):
        assert (ours.error, ours.workload, ours.count) == (theirs.error, theirs.workload, theirs.count)
    assert [row for row in written if not row.error]


FAR = "colour,comment,ms,tflops,source,model,layer,time_ms,id,keepdims,h,groups"
UNREAD = (
    (f"name,op,m,n,k,{FAR}\n" + f"x,matmul,1,2,3{',7' * 12}\n" * 2, FAR.replace(",", ", ")),
    ("op,m,n,k,shape,trans_b\nmatmul,1,2,3,,1\nsoftmax,,,,4x5,1\nrelu,,,,4x5,\n", "trans_b (of softmax)"),
    ("op,m,n,k\nmatmul,1,2,3\n", ""),
    ("op,m,n,k,tier,part,shapes,name,shape\nmatmul,1,2,3,4,h200,4x5,x,\nsoftmax,,,,,,4x5,,4x5\n", ""),  # of a recording
)


def test_columns_that_are_not_read_are_reported_once(tmp_path):
    path = tmp_path / "shapes.csv"
    assert [len(row.notes) for row in read(tmp_path, UNREAD[0][0])] == [13, 13]
    for text, columns in UNREAD:
        told = []
        path.write_text(text)
        assert not [row.error for row in read_shapes(path, told.append) if row.error]
        assert told == ([f"{path}: columns that are not read: {columns}"] if columns else [])


OPERATORS = {
    "matmul": ("gemm", "GEMM", "mm", "MatMul", "MATMUL", "mat_mul"),
    "batched_matmul": ("bmm", "BatchedMatMul"),
    "conv2d": ("conv", "Conv2D", "conv_2d"),
    "conv2d_transpose": ("ConvTranspose2d", "deconv2d"),
    "layernorm": ("LayerNorm", "layer_norm"),
    "reduce_sum": ("sum", "ReduceSum"),
    "attention": ("sdpa", "ScaledDotProductAttention"),
    "gemv": ("GEMV", "matvec"),
}


def test_element_types_and_operators_have_their_usual_names(tmp_path):
    assert {op_of(f" {word} ") for word in OPERATORS["conv2d"]} == {"conv2d"}
    for op, words in OPERATORS.items():
        assert {op_of(word) for word in words} == {op}
    rows = read(tmp_path, "op,m,n,k\n" + "".join(f"{word},8,8,8\n" for word in (*OPERATORS["matmul"], "bmm")))
    assert {row.workload.operator for row in rows} == {"matmul"} and not any(row.error for row in rows)
    typed, linear = read(tmp_path, "op,m,n,k\nDGEMM,8,8,8\nlinear,8,8,8\n")
    assert "did you mean matmul (with dtype = fp64)?" in typed.error and "(with trans_b = 1)?" in linear.error
    (row,) = read(tmp_path, "op,shape,axes\nLayerNorm,4x8,1\n")
    assert row.workload.operator == "layernorm"
    for words, dtype, math in ELEMENTS:
        rows = read(tmp_path, "op,m,n,k,dtype\n" + "".join(f"matmul,64,64,64,{word}\n" for word in words))
        assert [row.error for row in rows] == [None] * len(words)
        assert {(row.workload.dtype["a"], row.workload.math) for row in rows} == {(dtype, math)}


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "bool", "uint64"])
def test_scans_of_integers_are_those_of_calls(tmp_path, dtype, no_databases):
    """Or have the reason that calls have."""
    text = f"op,dtype,shape\ncumsum,{dtype},8x128\ncumprod,{dtype},8x128\nreduce_sum,{dtype},8x128\n"
    scan, product, total = read(tmp_path, text)
    x = np.ones((8, 128), dtype)
    with gk.emulated("sm_87"):
        found = [gk.explain(function, x, axis=1).workload for function in (gk.cumsum, gk.sum)]
    assert scan.workload.key() == found[0] and scan.error is None
    assert product.unsupported.startswith("cumprod takes float64, float32, float16, bfloat16, got int")
    if dtype in ("int8", "int32"):
        assert total.workload.key() == found[1]
    elif dtype == "int64":
        assert total.unsupported.startswith("sum takes")
    else:
        assert f"'{dtype}' is" in total.error


def test_a_recording_without_calls_has_nothing_to_load(tmp_path, monkeypatch, capsys):
    """`warmup` reads recordings by this command: a program that recorded no call starts as before."""
    path = tmp_path / "calls.csv"
    path.write_text("op,m,n,k\n")
    monkeypatch.setattr(sys, "argv", ["reader", str(path)])
    main()
    path.write_text("op,m,n,k,Dtype\nmatmul,1,2,3,fp16\n")
    with pytest.raises(SystemExit, match="'Dtype' is unknown"):
        main()
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public shape files are not beside this checkout")
def test_every_public_matmul_row_is_read():
    files = sorted(SHARED.glob("matmul_*.csv")) + sorted(SHARED.glob("e2e_matmul_*.csv"))
    rows = [row for path in files for row in read_shapes(path)]
    assert len(rows) > 1000
    assert [row.error for row in rows if row.error] == []


OTHERS = """op,dtype,n,h,w,c,k_out,r,s,pad_top,layout,groups,shape,axes,hidden,batch,timesteps,queries,heads,head,causal,note
conv2d,fp16,8,56,56,64,128,3,3,1,NHWC,,,,,,,,,,,seen
conv2d,fp32,8,56,56,64,128,1,1,,NCHW,,,,,,,,,,,
depthwise_conv2d,fp16,1,14,14,32,32,3,3,1,NHWC,,,,,,,,,,,
conv1d,fp32,1,,256,64,128,,3,,,,,,,,,,,,,
max_pool2d,fp16,8,112,112,64,,3,3,1,NHWC,,,,,,,,,,,
softmax,fp16,,,,,,,,,,,1x12x128x128,3,,,,,,,,
reduce_sum,fp32,,,,,,,,,,,128x4032x11x11,2;3,,,,,,,,
relu,fp32,,,,,,,,,,,4x5,,,,,,,,,
rnn_lstm,fp16,,,,,,,,,,,,,512,16,25,,,,,
attention,fp16,,,,,,,,,,,,,,2,,100,12,64,lower_right,
"""  # noqa: E501


def test_every_op_has_its_own_columns(tmp_path):
    rows = read(tmp_path, OTHERS)
    operators = ["conv2d", "matmul", "depthwise_conv2d", "conv2d", "max_pool2d", "softmax", "reduce_sum", "elementwise"]
    assert [row.workload.operator for row in rows] == [*operators, "matmul", "attention"]
    assert dict(rows[0].workload.layout) == {"x": "nhwc", "w": "krsc", "y": "nhwk"}
    assert rows[0].notes == {"note": "seen"}
    assert rows[1].workload.size["batch"] == 8 and rows[3].workload.size["h"] == 1
    assert rows[7].workload.epilogue == ("relu",)
    lstm = rows[8]
    assert (lstm.workload.size["n"], lstm.workload.size["m"], lstm.count) == (4 * 512, 16, 25)
    assert rows[9].workload.size["causal"] == 1


def test_a_pipe_and_stdin_are_read_as_files_are(tmp_path, monkeypatch):
    """As in `gensor-tune --shapes <(...)` and `... | gensor-tune --shapes -`."""
    text = b"op,m,n,k\nmatmul,1,2,3\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(text,))
    writer.start()
    found = [read_shapes(path) for path in (tmp_path / "pipe", "-")]
    writer.join()
    assert [[row.workload.size["k"] for row in rows] for rows in found] == [[3], [3]]
    assert not any(each.name == "-" for each in tmp_path.iterdir())


ATTENTION = """op,dtype,batch,heads,kv_heads,queries,keys,head,causal,window_left,window_right,softcap,page_size,table,pages
attention,fp16,2,8,2,64,,64,lower_right,31,,,,,
attention,fp16,2,8,2,64,,64,none,,,50.0,,,
attention,fp16,2,8,2,64,,64,none,999,,0,,,
attention_ragged,bf16,4,8,2,200,300,64,lower_right,31,,30,,,
attention_paged,fp16,4,8,2,1,,64,lower_right,,,,16,32,
attention_ragged_paged,fp16,4,8,2,9,,64,none,7,3,2,32,8,100
attention_paged,fp16,4,8,2,1,,64,none,,,,24,8,
attention,fp16,2,8,2,64,,64,none,,,much,,,
attention,fp16,2,8,2,64,,64,none,-1,,,,,
"""  # noqa: E501


def test_forms_of_attention_are_read(tmp_path):
    rows = read(tmp_path, ATTENTION)
    assert [row.workload.operator for row in rows[:6]] == [
        *("attention_windowed", "attention_capped", "attention", "attention_ragged_capped", "attention_paged"),
        "attention_ragged_paged_capped",
    ]
    sizes = [
        (0, {"window_left": 31, "window_right": 2**31 - 1}),
        (3, {"batch": 4, "queries": 200, "keys": 300}),
        (4, {"pages": 128, "page_size": 16, "table": 32}),
        (5, {"pages": 100, "window_right": 3}),
    ]
    for place, expected in sizes:
        assert expected.items() <= dict(rows[place].workload.size).items()
    assert "powers of two" in rows[6].unsupported
    assert "'softcap': 'much' is not a number" in rows[7].error and "'window_left'" in rows[8].error


def test_a_model_is_named_and_an_epilogue_of_no_kernel_unsupported(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"\x08\x07")
    with pytest.raises(ShapesError, match=r"net\.onnx: is a model: use --model in place of --shapes"):
        read_shapes(tmp_path / "net.onnx")
    (row,) = read(tmp_path, "op,m,n,k,epilogue\nmatmul,1,2,3,softmax\n")
    assert row.error is None and "softmax" in row.unsupported
