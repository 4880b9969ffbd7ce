"""The import order of the house: database <- gensor_kernels <- tuner, and the order inside the runtime."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from .structure import ROOT, circle, complaints, imported_names, module_name, tracked_files


def test_no_rule_of_the_structure_is_broken():
    """Imports point down, nothing imports itself by a detour, and no folder is crowded."""
    assert not complaints(), "\n".join(complaints())


def test_circles_are_found_in_every_form_of_import(tmp_path):
    forms = "import p.a", "from p import b", "def f():\n    from . import c", "import_module('p.d')"
    tree = ast.parse("\n".join(forms))
    found = {names for names in imported_names(tree, "p.x", False)}
    assert found == {("p.a",), ("p.b", "p"), ("p.c", "p"), ("p.d",)}
    assert {*circle({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": set()})} == {"b", "c"}
    assert not circle({"a": {"b", "c"}, "b": {"c"}})


def names() -> Iterator[tuple[str, str]]:
    """Every file of the packages with every module name that it imports."""
    for path in tracked_files():
        if path.endswith(".py") and path.split("/")[0] in ("database", "gensor_kernels", "tuner"):
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            for found in imported_names(tree, module_name(path), path.endswith("__init__.py")):
                yield path, found[0]


def test_single_users_of_modules():
    """A cached_property with a lock would block a forked child (gensor_database/lazy.py); folder names import twice."""
    imported = list(names())
    assert [path for path, name in imported if name == "functools.cached_property"] == ["database/lazy.py"]
    assert not [path for path, name in imported if name.split(".")[0] in ("database", "tuner")]
    users = {path for path, name in imported if name.split(".")[0] in ("cupy", "cupyx")}
    assert users <= {"gensor_kernels/devices/cuda.py"}, users


@pytest.mark.parametrize("folder", ["database", "tuner"])
def test_folders_refuse_a_second_import(folder):
    done = subprocess.run([sys.executable, "-c", f"import {folder}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"gensor_{folder}" in done.stderr


def test_importing_the_runtime_is_cheap():
    """It loads nothing but itself; its public names load no heavy package, and leave to first calls what they need."""
    code = "import sys; old = set(sys.modules); import gensor_kernels; print(*(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = {name for name in done.stdout.split() if name.startswith("gensor")}
    assert own == {"gensor_kernels", "gensor_database", "gensor_database.lazy"} and "numpy" not in done.stdout.split()
    code = code.replace("; print", "; [getattr(gensor_kernels, name) for name in gensor_kernels.__all__]; print")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "gensor_kernels" in loaded
    assert not loaded & {"cupy", "typer", "tqdm", "sqlite_utils", "cuda", "gensor_tuner", "hypothesis", "opt_einsum"}
    assert not loaded & {"sqlite3", "lzma", "tempfile", "hashlib", "json", "subprocess", "decimal"}
    modules = {name.removeprefix("gensor_kernels.") for name in done.stdout.split() if "gensor_kernels." in name}
    late = ("programs", "machine", "build", "devices", "operators.", "dispatch.plans.", "dispatch.functions.")
    allowed = {"operators.types", "operators.types.epilogue", "operators.types.dtypes"}
    assert not [name for name in modules - allowed if name.startswith(late)]


@pytest.mark.parametrize("package", ["database", "gensor_kernels"])
def test_public_names_are_what_type_checkers_see(package):
    """Each is the object of the module that the imports for type checkers name, and nothing else is public."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    blocks = [each for each in tree.body if isinstance(each, ast.If) and ast.unparse(each.test) == "_TYPE_CHECKING"]
    imported = importlib.import_module(f"gensor_{package.removeprefix('gensor_')}")
    declared = {alias.name: each.module for each in blocks[0].body for alias in each.names}
    assert sorted(declared) == sorted(imported.__all__)
    for name, module in declared.items():
        assert getattr(imported, name) is vars(importlib.import_module(f"{imported.__name__}.{module}"))[name], name


#: What Windows lacks and Linux has, of what a module could read when it is imported.
ONLY_POSIX = {
    "os": "fork forkpty register_at_fork sched_getaffinity geteuid getuid getegid getgid killpg getpgid setsid mkfifo "
    "fchown chown lchown statvfs posix_fadvise O_NOFOLLOW O_CLOEXEC O_NONBLOCK O_DIRECTORY O_SYNC",
    "signal": "SIGKILL SIGHUP SIGALRM SIGUSR1 SIGCHLD alarm setitimer pthread_sigmask sigwait",
}


def test_the_runtime_imports_where_nothing_of_posix_is():
    """As on Windows; the standard library has taken what it needs before."""
    code = f"""
import importlib, os, pkgutil, sys
import concurrent.futures, ctypes, logging, multiprocessing.pool, opt_einsum, numpy.testing
import signal, sqlite3, subprocess, tempfile, threading
for module, names in {ONLY_POSIX!r}.items():
    for name in names.split():
        vars(sys.modules[module]).pop(name, None)
for name in ("fcntl", "grp", "pwd", "resource", "termios", "pty"):
    sys.modules[name] = None
import gensor_database, gensor_kernels
found = [each.name for package in (gensor_database, gensor_kernels)
         for each in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in found:
    importlib.import_module(name)
print(len(found), gensor_kernels.counters())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.stderr and int(done.stdout.split()[0]) > 200
