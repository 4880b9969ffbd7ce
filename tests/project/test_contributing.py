"""What CONTRIBUTING.md adds: the operator of its text and the family of examples/plain, tuned, verified and served."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import gensor_kernels
from gensor_database.store import Store
from gensor_kernels import operators
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.dispatch.observe import record_file
from gensor_kernels.families import registry
from gensor_kernels.families.core import source
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes
from tests.doubles.stored import isolate
from tests.families.lattices import random_legal

ROOT = Path(__file__).resolve().parents[2]
TEXT, EXAMPLE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), ROOT / "examples" / "plain"
ARCH = "sm_87"


def module_of(name: str, code: str) -> types.ModuleType:
    made = types.ModuleType(name)
    exec(compile(code, f"{name}.py", "exec"), made.__dict__)
    return made


def tune(folder, shapes):
    (folder / "shapes.csv").write_text(shapes)
    with Store.open(folder / "kernels.db") as store:
        run = Run(lookup(ARCH), store, Options(top=2, jobs=1))
        results = [result for _, result in run.rows(read_shapes(folder / "shapes.csv"))]
    assert [(result.status, result.error, result.verified) for result in results] == [("ok", None, "emulator")] * 2
    return results


@pytest.fixture
def scores(monkeypatch):
    """Add the file and the line of the text."""
    code = re.search(r"file\s`(\w+)\.py` in `products/`:\n\n```python\n(.*?)```", TEXT, re.DOTALL)
    line = re.search(r'```\n    "(products\.\w+)": "(\w+)",\n```', TEXT)
    module = module_of(f"{operators.__name__}.products.{code[1]}", code[2])
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(operators.MODULES, line[2], line[1])
    yield code[1]
    operators.operator.cache_clear()


def test_the_operator_is_tuned_and_verified(scores, tmp_path):
    rows = f"op,b,h,i,j,d,dtype,epilogue\n{scores},2,3,40,48,32,fp16,scale\n{scores},1,2,33,31,16,fp32,none\n"
    results = tune(tmp_path, rows)
    assert {result.family for result in results} == {"contraction_mma", "contraction_simt"}
    assert results[0].workload.flops() == 2 * 2 * 3 * 40 * 48 * 32


def test_its_calls_would_be_recorded_as_they_are(scores, tmp_path):
    wanted = operators.operator(scores).workload({"b": 1, "h": 2, "i": 16, "j": 17, "d": 24}, "float16")
    wanted = wanted.with_epilogue(("scale", "gelu", "tanh"))
    row = record_file.workload_row(wanted, record_file.Served(3, "h200"))
    record_file.update(tmp_path / "shapes.csv", {row: 1})
    (found,) = read_shapes(tmp_path / "shapes.csv")
    assert found.workload == wanted


@pytest.fixture
def plain_family(monkeypatch):
    """Add the family of examples/plain to the registry, in which no other family serves."""
    monkeypatch.setitem(source._installed_files(), "contraction_plain.cu", EXAMPLE / "contraction_plain.cu")
    made = module_of(f"{registry.__package__}.plain.family", (EXAMPLE / "family.py").read_text(encoding="utf-8"))
    (name,) = re.findall(r"^        (\w+),$", TEXT, re.MULTILINE)
    family = vars(made)[name]
    for other in list(registry.FAMILIES):
        monkeypatch.delitem(registry.FAMILIES, other)
    monkeypatch.setitem(registry.FAMILIES, family.name, family)
    yield family
    source._flatten_installed.cache_clear()


def test_legal_programs_of_the_family_compile(plain_family):
    lattice = FamilySpace(plain_family, workload(100, 96, 65, dtype="float32", epilogue=("bias",)), lookup(ARCH))
    for point in random_legal(lattice, 3):
        program = lattice.program(point)
        constants = plain_family.constants(program, lattice.workload)
        binary = compile_cubin(source.bind(plain_family.text, constants), lattice.arch.target)
        assert binary.error is None and plain_family.name in binary.entries
        assert plain_family.launches(program, lattice.workload)[0].grid == lattice.explain(point)["blocks"]


def test_the_family_is_walked_verified_and_served(plain_family, tmp_path, monkeypatch):
    rows = "op,m,n,k,dtype,epilogue\nmatmul,40,48,32,fp32,bias_relu\nmatmul,33,31,17,fp16,none\n"
    assert {result.family for result in tune(tmp_path, rows)} == {plain_family.name}
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "kernels.db"))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((33, 17), (17, 31)))
    with gensor_kernels.emulated(ARCH):
        assert gensor_kernels.explain(gensor_kernels.matmul, a, b).family == plain_family.name
        np.testing.assert_array_equal(gensor_kernels.matmul(a, b), (a.astype(np.float64) @ b).astype(np.float16))


def test_each_file_exists_and_contains_the_name():
    """The table "Where would I change ...?"."""
    section = re.search(r"^## Where would I change \.\.\.\?\n\n(.*?)\n\n[^|]", TEXT, re.MULTILINE | re.DOTALL)[1]
    rows = re.findall(r"^\| [^|]*? ?\| `([^`|]+)` \| `(\w+)` \|$", section, re.MULTILINE)
    assert len(rows) == len(section.splitlines()) - 2 >= 20
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path, _ in rows}
    assert not [row for row in rows if not re.search(rf"\b{row[1]}\b", texts[row[0]])]
