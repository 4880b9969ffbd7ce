"""The kernel family of examples/plain, which CONTRIBUTING.md adds: walked, built, verified, stored and served."""

import re
import types
from pathlib import Path

import numpy as np
import pytest

import gensor_kernels
from gensor_database.store import Store
from gensor_kernels.build import source
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.programs import registry
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes
from tests.doubles.stored import isolate
from tests.programs.lattices import random_legal

ROOT = Path(__file__).resolve().parents[2]
CONTRIBUTING, EXAMPLE = ROOT / "CONTRIBUTING.md", ROOT / "examples" / "plain"
ARCH = "sm_87"


@pytest.fixture
def plain_family(monkeypatch, tmp_path):
    """Add the family of examples/plain to the registry, in which no other family serves."""
    monkeypatch.setitem(source._installed_files(), "contraction_plain.cu", EXAMPLE / "contraction_plain.cu")
    made = types.ModuleType(f"{registry.__package__}.plain.family")
    exec(compile((EXAMPLE / "family.py").read_text(encoding="utf-8"), "family.py", "exec"), made.__dict__)
    (name,) = re.findall(r"^        (\w+),$", CONTRIBUTING.read_text(encoding="utf-8"), re.MULTILINE)
    family = vars(made)[name]
    for other in list(registry.FAMILIES):
        monkeypatch.delitem(registry.FAMILIES, other)
    monkeypatch.setitem(registry.FAMILIES, family.name, family)
    yield family
    source._flatten_installed.cache_clear()


def test_legal_programs_compile(plain_family):
    lattice = FamilySpace(plain_family, workload(100, 96, 65, dtype="float32", epilogue=("bias",)), lookup(ARCH))
    for point in random_legal(lattice, 3):
        bound = source.bind(
            source.flatten(plain_family.source), plain_family.constants(lattice.program(point), lattice.workload)
        )
        binary = compile_cubin(bound, lattice.arch.target)
        assert binary.error is None and plain_family.name in binary.entries
        assert (
            plain_family.launches(lattice.program(point), lattice.workload)[0].grid == lattice.explain(point)["blocks"]
        )


def test_the_family_is_walked_verified_and_served(plain_family, tmp_path, monkeypatch):
    shapes = tmp_path / "shapes.csv"
    shapes.write_text("op,m,n,k,dtype,epilogue\nmatmul,40,48,32,fp32,bias_relu\nmatmul,33,31,17,fp16,none\n")
    with Store.open(tmp_path / "kernels.db") as store:
        run = Run(lookup(ARCH), store, Options(top=2, jobs=1))
        results = [result for _, result in run.rows(read_shapes(shapes))]
    wanted = [("ok", None, "emulator", plain_family.name)] * 2
    assert [(result.status, result.error, result.verified, result.family) for result in results] == wanted
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "kernels.db"))
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((33, 17), (17, 31)))
    with gensor_kernels.emulated(ARCH):
        assert gensor_kernels.explain(gensor_kernels.matmul, a, b).family == plain_family.name
        np.testing.assert_array_equal(gensor_kernels.matmul(a, b), (a.astype(np.float64) @ b).astype(np.float16))
