"""Whole programs inside `accelerate`: `python -m gensor_kernels run`, `GENSOR_ACCELERATE`, and the report."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.accelerated import accelerate
from tests.doubles.kernels import kernels, put, runtime_of, workload

cupy = pytest.importorskip("cupy")

#: A program that shows what it sees of itself, and ends in the way that its second argument names.
PROGRAM = """
import atexit, pickle, sys
import beside

class Mine: pass

def fail():
    raise RuntimeError("its own error")

atexit.register(lambda: print("at exit", Mine.__name__))
print(__name__, __file__, sys.argv, sys.path[0], __spec__, __package__, flush=True)
print(sys.modules["__main__"].Mine is Mine, flush=True)
print(type(pickle.loads(pickle.dumps(Mine()))) is Mine, beside.value, flush=True)
{"well": int, "code": lambda: sys.exit(7), "words": lambda: sys.exit("in words"), "error": fail}[sys.argv[2]]()
"""
REPLACED = "import sys, cupy; print(*(type(getattr(cupy, n)).__name__ == 'Routed' for n in ('sum', 'matmul')))"


@pytest.fixture
def folder(tmp_path):
    """A folder with the program."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "beside.py").write_text("value = 5", encoding="utf-8")
    (tmp_path / "wrong.py").write_text("x = (", encoding="utf-8")
    (tmp_path / "replaced.py").write_text(REPLACED, encoding="utf-8")
    return tmp_path


def python(folder, *args, **environment):
    """The end of a process: exit code, output and errors."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment
    done = subprocess.run([sys.executable, *args], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("given", ["well", "code", "words", "error", None])
def test_programs_run_as_by_python(folder, given):
    """Arguments, paths, exit codes, tracebacks and what is done at exit."""
    args = ["wrong.py"] if given is None else ["program.py", "--report", given]
    found = python(folder, "-m", "gensor_kernels", "run", *args)
    assert found == python(folder, *args)
    assert found[0] == {"well": 0, "code": 7}.get(given, 1) and (given is None or "at exit Mine" in found[1])


def test_programs_and_modules_are_accelerated(folder):
    run = ("-m", "gensor_kernels", "run")
    assert python(folder, *run, "replaced.py")[1].split() == ["True", "True"]
    assert python(folder, *run, "--only", "products", "-m", "replaced")[1].split() == ["False", "True"]
    code, _, text = python(folder, *run, "--only", "summ", "replaced.py")
    assert code == 2 and "did you mean 'sum'" in text
    code, _, text = python(folder, *run, "absent.py")
    assert code == 2 and "can't open file" in text and "Traceback" not in text


def test_the_environment_accelerates_once_the_package_is_imported(folder):
    """A name that is none is a warning; the program runs."""
    import_first = ("-c", f"import gensor_kernels; {REPLACED}")
    assert python(folder, *import_first, GENSOR_ACCELERATE="1")[1].split() == ["True", "True"]
    assert python(folder, *import_first, GENSOR_ACCELERATE="matmul, dot")[1].split() == ["False", "True"]
    assert python(folder, *import_first, GENSOR_ACCELERATE="0")[1].split() == ["False", "False"]
    code, found, text = python(folder, *import_first, GENSOR_ACCELERATE="summ")
    assert code == 0 and found.split() == ["False", "False"] and text.count("nothing is accelerated") == 1


def test_a_program_reports_at_its_end(folder):
    """On stderr, also after an error."""
    code, found, text = python(folder, "-m", "gensor_kernels", "run", "--report", "program.py", "x", "error")
    assert code == 1 and "at exit Mine" in found and "accelerate:" not in found
    assert text.index("its own error") < text.index("accelerate: no call reached gensor_kernels")


@pytest.fixture
def launched(orin, monkeypatch):
    """A Runtime whose kernels serve every aligned float32 product; the list of its launches. CuPy is the machine's."""
    monkeypatch.setattr(sys.modules[__name__], "cupy", orin.cupy)
    put(monkeypatch, runtime_of(orin.device(), kernels(workload(64, 64, 64))))
    monkeypatch.setattr(accelerate, "_lock", threading.RLock())
    return orin.context.launches


def test_a_report_has_what_was_reached_and_who_served_it(launched, monkeypatch):
    a, whole = cupy.empty((64, 64), np.float32), cupy.empty((64, 64), np.int64)
    for name in ("sum", "dot"):
        monkeypatch.setattr(cupy, name, lambda *args, **keywords: a)
    with gensor_kernels.accelerate("matmul", "sum", "dot", report=True) as report:
        for _ in range(3):
            a @ a
        cupy.matmul(a, a)
        for _ in range(2):
            cupy.sum(a, axis=0)  # no kernel is stored
        cupy.sum(whole)
        cupy.dot(a, a[:10])  # does not fit: CuPy raises its own error, or not
        gensor_kernels.matmul(a, a)  # not a call of CuPy's
        cupy.einsum  # noqa: B018 - is not reached
    a_kernel, of_cupy = (3, 0, 0), (0, 2, 1)
    assert report.functions == {
        "ndarray.__matmul__": a_kernel, "cupy.sum": of_cupy, "cupy.matmul": (1, 0, 0), "cupy.dot": (0, 0, 1)
    }  # fmt: skip
    assert len(launched) == 5
    lines = str(report).splitlines()
    assert lines[1].split() == ["function", "calls", "by", "kernels", "by", "CuPy", "unchanged"]
    assert next(line.split() for line in lines if line.startswith("cupy.sum ")) == ["cupy.sum", "3", "0", "2", "1"]
    assert any("matmul fp32 k=64 m=64 n=64" in line and "predicted" in line for line in lines)
    assert any("reduce_sum fp32" in line and "CuPy" in line and "not known" in line for line in lines)
    assert lines[-1].startswith("4 calls by kernels, predicted: ") and " in place of " in lines[-1]
    with gensor_kernels.accelerate():
        a @ a
    assert report.functions["ndarray.__matmul__"] == (3, 0, 0) and accelerate.counting is None


def test_a_report_of_nothing_says_so(launched):
    with gensor_kernels.accelerate(report=True) as report:
        gensor_kernels.matmul(*[cupy.empty((64, 64), np.float32)] * 2)
    assert str(report) == "accelerate: no call reached gensor_kernels" and report.functions == {}
