"""The table and the summary of a run: the user's words, order and counts, and times as times."""

import doctest
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from gensor_database.text import duration, span
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.attention import attention, sequences
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.windows import conv
from gensor_kernels.tables import shorten
from gensor_tuner.output import sizes_text
from gensor_tuner.run.result import InOrder, Result, Table, next_steps, summary, totals
from gensor_tuner.shapes.reader import Row, read_shapes
from gensor_tuner.store.uses import model_of, words

H100 = lookup("h100-sxm")
PRODUCT = matmul.workload(64, 64, 64, dtype="float16")


def test_times_read_as_times():
    times = {None: "", 0.0: "0 µs", 0.8412: "0.841 µs", 999.96: "1 ms", 1840.2: "1.84 ms", 59.94e6: "59.9 s"}
    times |= {59.96e6: "1 min", 9000e6: "2.5 h", 6 * 365 * 86400e6: "6 years", float("inf"): "unknown"}
    assert {us: duration(us) for us in times} == times


def test_sizes_are_in_the_words_of_the_operator():
    image = {"n": 1, "h": 56, "w": 56, "c": 64, "k_out": 128, "r": 3, "s": 3, "stride_h": 2, "stride_w": 2}
    pads = dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 1)
    rest = {"dilation_h": 1, "dilation_w": 1, "groups": 1}
    assert sizes_text(conv.workload(**image, **pads, **rest, dtype="float16")) == "56x56x64 -> 128, 3x3/2"
    decode = attention.workload(1, 2048, batch=8, heads=32, kv_heads=8, head=128, dtype="float16")
    assert sizes_text(decode) == "8x32x1x128, 2048 keys for 8 heads"
    assert sizes_text(attention.workload(128, 512, heads=4, head=64, dtype="float16")) == "4x128x64, 512 keys"
    paged = sequences.workload(8, 1, 4096, ragged=False, page_size=16, table=64, heads=4, head=64)
    assert sizes_text(paged) == "8x4x1x64, 64 pages of 16 keys"
    assert sizes_text(matmul.workload(1, 64, 32, dtype="float16")) == "1x64x32"


SHAPES = """name,op,dtype,m,n,k,h,w,c,k_out,r,s,shape,axes,count,set
pointwise,conv2d,fp16,,,,14,14,64,32,1,1,,,3,a
sum,reduce_sum,fp32,,,,,,,,,,4095x1023,0,1,a
product,matmul,fp16,64,32,16,,,,,,,,,12,b
"""


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    (tmp_path / "net.csv").write_text(SHAPES)
    return read_shapes(tmp_path / "net.csv")


def test_rows_keep_their_authors_words(rows):
    assert [words(row) for row in rows] == [
        ("conv2d", "14x14x64 -> 32, 1x1"),
        ("reduce_sum", "4095x1023 over 0"),
        ("matmul", "64x32x16"),
    ]
    table = Table(rows)
    line = table.line(rows[0], Result(rows[0].workload, "ok", "d" * 64, "f", {}, 4.5, 2.25))
    assert line.split()[:6] == ["pointwise", "conv2d", "14x14x64", "->", "32,", "1x1"]
    assert line.index("conv2d") == table.header().index("op") and "    3 float16" in line
    assert "~4.5 µs " in line and " 2.25 µs " in line


LONG = "decoder_layer_17_self_attention_query_projection"


@pytest.mark.parametrize("width", [66, 80, 100, 120, 160])
def test_a_table_fits_its_terminal_and_a_row_without_a_kernel_gives_its_whole_reason(rows, width):
    rows = [*rows, Row(5, LONG, error="net.csv:5: column 'dtype': 'fp17' is unknown: did you mean fp16? " * 3)]
    results = [Result(row.workload, "ok", "d" * 64, "family", {}, 4.5, 2.25) for row in rows]
    results[1] = Result(rows[1].workload, "unsupported", error="its operands exceed the memory of this part " * 4)
    table, whole = Table(rows, width=width), Table(rows)
    lines = [table.header(), *(table.line(row, result) for row, result in zip(rows, results, strict=True))]
    assert max(len(line) for text in lines for line in text.splitlines()) <= width
    titles = table.header().split()
    assert (
        {"name", "sizes", "calls", "dtype", "ours", "CuPy", "gain", "serves"} <= {*titles} <= {*whole.header().split()}
    )
    assert ("verified" in titles) == (width == 160) and ("op" in titles) == (width > 120)
    assert lines[1].index("~4.5 µs") > lines[1].index("float16") and ("2.25 µs" in lines[1]) == ("bound" in titles)
    for row, result, line in zip(rows, results, lines[1:], strict=True):
        if row.error or result.error:
            status = "bad row" if row.error else result.status
            reason = " ".join((row.error or result.error).split())
            assert f"{status}: {reason}" in " ".join(line.split())
            assert f"{status}: {row.error or result.error}".rstrip() in whole.line(row, result)
    assert LONG in whole.line(rows[-1], results[-1]) and "…" not in whole.line(rows[-1], results[-1])
    name = lines[-1].split()[0]
    assert name.startswith("deco") and name.endswith("ion") and "…" in name


def test_all_columns_are_there_where_nothing_limits_them(rows):
    titles = "name op sizes calls dtype ours expected bound CuPy gain serves verified"
    assert Table(rows).header().split() == Table(rows, width=200).header().split() == titles.split()
    assert Table(rows, ["sm_80", "sm_87"]).header().startswith("arch  name")
    assert [shorten("0123456789", width) for width in (20, 10, 9, 4, 1)] == [
        *["0123456789"] * 2,
        "0123…6789",
        "01…9",
        "…",
    ]


def test_lines_come_in_the_order_of_the_file_and_the_end_names_the_next_commands(tmp_path):
    told: list[str] = []
    rows = [Row(line, f"row {line}") for line in range(2, 7)]
    ordered = InOrder([(0, row) for row in rows], lambda _, row, __: told.append(row.name))
    result = Result(None, "ok")
    ordered.add(0, rows[2], result)
    assert not told
    ordered.add(0, rows[0], result)
    assert told == ["row 2"]
    ordered.add(0, rows[1], result)
    assert told == ["row 2", "row 3", "row 4"]
    ordered.add(0, rows[4], result)
    ordered.rest()
    assert told == ["row 2", "row 3", "row 4", "row 6"]
    told = next_steps(Path("my kernels.db"), False)
    assert told.startswith("next: gensor-tune report --db 'my kernels.db'; GENSOR_DB='my kernels.db' python ")
    assert "GENSOR_DB" not in next_steps(tmp_path / "k.db", True)


def test_totals_count_calls_by_model(rows):
    assert [model_of(row, "net") for row in rows] == ["a", "a", "b"]
    assert model_of(Row(2, "x"), "net") == "net"
    ok = Result(PRODUCT, "ok", "d", "f", {}, 100.0, 50.0)
    failed = Result(PRODUCT, "failed", error="no")
    told = totals(
        list(zip(rows, (ok, failed, replace(ok, measured_us=80.0, vendor_us=160.0, arch=H100)), strict=True)), "net"
    )
    expected = "255 to 552 µs expected by times on h100-sxm"  # of a family without times
    assert told == [
        f"a: 3 calls take 300 µs (predicted; {expected}), the bound is 150 µs; without 1 row that has no kernel",
        "b: 12 calls take 1.2 ms (predicted), the bound is 600 µs; "
        "CuPy's calls 1.92 ms (measured), 2 times ours, 960 µs",
    ]
    many = [(replace(rows[2], notes={"set": f"m{i}"}), ok) for i in range(20)]
    expected = "20.4 to 44.2 ms expected by times on h100-sxm"
    assert totals(many, "net") == [f"20 models: 240 calls take 24 ms (predicted; {expected}), the bound is 12 ms"]


def test_rows_and_totals_compare_with_cupys_calls(rows):
    plain = Result(PRODUCT.with_sizes(m=4096, n=4096, k=4096), "ok", "d", "f", {}, 200.0, 150.0, arch=H100)
    fused = replace(plain, workload=plain.workload.with_epilogue(["bias", "gelu"]))
    whole = replace(plain, workload=matmul.workload(64, 64, 64, dtype="int8"))
    table = Table(rows)
    columns = table.header().split().index("ours")
    for result, serves in ((plain, "race"), (fused, "ours"), (whole, "ours")):
        assert result.comparison.serves == serves and f" {serves}" in table.line(rows[2], result)
    assert plain.comparison.theirs_us < fused.comparison.theirs_us and whole.comparison.theirs_us is None
    assert columns and table.line(rows[2], plain).count("~") == 2 and "~" in table.line(rows[2], whole)
    lost = replace(plain, measured_us=210.0, vendor_us=200.0)
    low, high = plain.comparison.expected_us
    assert low < high and f" {span(low, high)} " in table.line(rows[2], plain) and lost.comparison.expected_us is None
    assert lost.comparison.serves == "CuPy" and "~" not in table.line(rows[2], lost)
    assert replace(lost, vendor_us=400.0).comparison.serves == "ours" and lost.comparison.gain == 200 / 210
    (model,) = totals([(rows[2], plain), (rows[2], lost)], "net")
    assert "CuPy's calls of 12 of them 2.4 ms (measured), 0.952 times ours, 2.52 ms; CuPy's calls of 12 of" in model
    assert any(line.startswith("served by race, rows: 1; CuPy until") for line in summary([plain, fused]))


@pytest.mark.parametrize("out, named", [("int32", True), ("int8", False)])
def test_the_summary_names_the_dtype_of_exact_int8_calls(out, named):
    product = matmul.workload(64, 64, 64, dtype="int8", out=out)
    lines = summary([Result(product, "ok", "d", "f", {}, 100.0, 80.0)])
    assert any('dtype="int32"' in line for line in lines) == named


@pytest.mark.parametrize("module", ["run.progress", "shapes.reader", "store.uses"])
def test_examples_run(module):
    found = doctest.testmod(import_module(f"gensor_tuner.{module}"))
    assert found.attempted and not found.failed
