"""The operator that CONTRIBUTING.md adds: its text, as a module, tuned from a shapes file and executed."""

import re
import sys
import types
from pathlib import Path

import pytest

from gensor_database.store import Store
from gensor_kernels import operators
from gensor_kernels.dispatch.observe import record_file
from gensor_kernels.machine.arch import lookup
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def scores(monkeypatch):
    """Add the file and the line of the text."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    code = re.search(r"file\s`(\w+)\.py` in `products/`:\n\n```python\n(.*?)```", text, re.DOTALL)
    name, source = code[1], code[2]
    line = re.search(r'```\n    ("\w+"): ("[\w.]+"),\n```', text)
    module = types.ModuleType(f"{operators.__name__}.products.{name}")
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(operators.MODULES, line[1].strip('"'), line[2].strip('"'))
    yield name
    operators.operator.cache_clear()


def test_the_operator_is_tuned_and_verified(scores, tmp_path):
    shapes = tmp_path / "shapes.csv"
    shapes.write_text(
        f"op,b,h,i,j,d,dtype,epilogue\n{scores},2,3,40,48,32,fp16,scale\n{scores},1,2,33,31,16,fp32,none\n"
    )
    rows = read_shapes(shapes)
    assert [row.error or row.unsupported for row in rows] == [None, None]
    with Store.open(tmp_path / "kernels.db") as store:
        results = [result for _, result in Run(lookup("sm_87"), store, Options(top=2, jobs=1)).rows(rows)]
    assert [(result.status, result.error, result.verified) for result in results] == [("ok", None, "emulator")] * 2
    assert {result.family for result in results} == {"contraction_mma", "contraction_simt"}
    assert results[0].workload.flops() == 2 * 2 * 3 * 40 * 48 * 32


def test_its_calls_would_be_recorded_as_they_are(scores, tmp_path):
    declared = operators.operator(scores)
    wanted = declared.workload({"b": 1, "h": 2, "i": 16, "j": 17, "d": 24}, "float16")
    wanted = wanted.with_epilogue(("scale", "gelu", "tanh"))
    row = record_file.workload_row(wanted, record_file.Served(3, "h200"))
    record_file.update(tmp_path / "shapes.csv", {row: 1})
    (found,) = read_shapes(tmp_path / "shapes.csv")
    assert found.workload == wanted
