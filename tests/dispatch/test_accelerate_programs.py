"""Whole programs inside `accelerate`: `python -m gensor_kernels run` and `GENSOR_ACCELERATE`."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("cupy")

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
