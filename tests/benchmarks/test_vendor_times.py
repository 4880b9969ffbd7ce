"""benchmarks.vendor_times: the pick of each published row, next to its time."""

import csv
import gzip
import math
from dataclasses import replace

import pytest

from benchmarks import vendor_times
from gensor_kernels.dispatch.selection import load
from gensor_kernels.dispatch.selection.predict import predict_divided
from gensor_kernels.machine.arch import lookup

PRODUCTS = """dtype,m,n,k,least_us,median_us,collections
bfloat16,4096,4096,4096,540.0,560.0,2
bfloat16,4,4096,4096,,,0
nvfp4,64,64,64,9.0,9.0,1
float16 per 128,64,64,64,9.0,9.0,1
int4 weights,1,4096,4096,7.5,8.0,3
"""
ATTENTIONS = """phase,batch,heads,kv_heads,head_size,queries,past,window,least_us,median_us,collections
prefill,1,16,16,128,2048,0,128,90.0,95.0,2
decode,8,32,8,128,1,4095,0,90.0,95.0,2
"""


@pytest.fixture
def files(tmp_path):
    for name, text in (("products", PRODUCTS), ("attention", ATTENTIONS)):
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return [str(tmp_path / f"{name}.csv.gz") for name in ("products", "attention")]


def test_each_row_has_the_best_stored_kernel(files, tmp_path, capsys):
    out = tmp_path / "out.csv"
    assert vendor_times.main([*files, "--part", "a100-80gb", "--predictions", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    assert [row["predicted_us"] != "" for row in rows] == [True, True, True, False, True, True, True]
    assert [row["least_us"] for row in rows] == ["540.0", "", "9.0", "9.0", "7.5", "90.0", "90.0"]
    arch = lookup("a100-80gb")
    library, wanted = load.library(arch), vendor_times.workload_of(rows[1])
    kernels = [each for shelf in library.shelves(wanted) for each in (*shelf.portfolio, *shelf.others)]
    least = min(seconds for _, seconds in predict_divided(kernels, wanted, replace(arch, launch_us=0.0), library)) * 1e6
    assert least - 1e-3 <= float(rows[1]["predicted_us"]) <= 1.2 * least
    assert all(float(row["predicted_us"]) > float(row["bound_us"]) for row in rows if row["predicted_us"])
    printed = capsys.readouterr().out
    assert "a100-80gb, bfloat16: 2 rows, 2 served, 1 of these timed" in printed
    assert "a100-80gb, nvfp4: 1 rows, 1 served" in printed and "attention, decode" in printed
    assert "a100-80gb, float16 per 128: 1 rows, 0 served" in printed


def test_rows_ask_for_what_their_cells_say():
    cells = {"batch": "2", "heads": "8", "kv_heads": "4", "head_size": "64", "queries": "3", "past": "5"}
    found = vendor_times.workload_of({"phase": "prefill", **cells, "window": "4"})
    assert found.size["keys"] == 8 and found.size["queries"] == 3 and found.size["kv_heads"] == 4
    assert found.size["window_left"] == 3, "a query sees itself and three keys before it"
    assert "window_left" not in vendor_times.workload_of({"phase": "prefill", **cells, "window": "0"}).size
    product = vendor_times.workload_of({"dtype": "float8_e4m3fn per 128", "m": "3", "n": "256", "k": "512"})
    assert product.dtype["c"] == "bfloat16" and product.layouts["b"] == "k"
    product = vendor_times.workload_of({"dtype": "nvfp4", "m": "3", "n": "256", "k": "512"})
    assert product.dtype["a"] == product.dtype["b"] and product.align["d"] == 4 and product.epilogue == ("scale",)


def test_classes_and_figures():
    rows = [
        vendor_times.Row({"m": str(us)}, "bfloat16", size, us, bound, 10.0, "gemv", "DRAM")
        for us, size, bound in ((5.0, "a", 6.0), (20.0, "a", 6.0), (40.0, "b", 6.0), (math.nan, "b", 6.0))
    ]
    printed = list(vendor_times.lines(rows, "h200"))
    assert printed[0].endswith("4 rows, 4 served, 3 of these timed")
    (everything,) = (line.split() for line in printed if line.startswith("  all"))
    assert everything[1:3] == ["3", "1.59"], "the cube root of 0.5 x 2 x 4"
    assert printed[-2].startswith("  1 rows are faster") and printed[-1].startswith("    0.83 of 6 us")


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "", "dtype,m,n,k,least_us\nbfloat16,1,x,1,\n"])
def test_other_files_are_refused(tmp_path, capsys, text):
    (tmp_path / "x.csv").write_text(text)
    arguments = [str(tmp_path / "x.csv"), "--part", "h200", "--predictions", str(tmp_path / "out.csv")]
    assert vendor_times.main(arguments) == 2
    assert "python -m benchmarks.vendor_times: " in capsys.readouterr().err
