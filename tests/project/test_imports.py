"""The import order of the house: database <- gensor_kernels <- tuner, and the order inside the runtime."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"gensor_database": "database", "gensor_kernels": "gensor_kernels", "gensor_tuner": "tuner"}
ORDER = ["gensor_database", "gensor_kernels", "gensor_tuner"]
INSIDE = {
    "gensor_kernels": [
        "errors config forking",
        "operators",
        "machine",
        "programs",
        "cuda build",
        "devices",
        "shape_row record_file recording",
        "dispatch",
        "explain accelerating warming",
        "__init__",
    ],
}


def module_name(package: str, path: Path) -> str:
    parts = path.relative_to(ROOT / PACKAGES[package]).with_suffix("").parts
    return ".".join((package, *(part for part in parts if part != "__init__")))


def imports(path: Path, module: str, is_package: bool):
    """Every module a file names, in any form: absolute, relative, in functions, import_module("...")."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = module.split(".")
                anchor = anchor[: len(anchor) - node.level + (1 if is_package else 0)]
                base = ".".join([*anchor, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def edges():
    for package, folder in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = module_name(package, path)
            for target in imports(path, module, path.name == "__init__.py"):
                yield package, module, target, path.relative_to(ROOT)


def layer(package: str, module: str) -> int | None:
    head = module.split(".")[1] if "." in module else "__init__"
    for rank, names in enumerate(INSIDE.get(package, [])):
        if head in names.split():
            return rank
    return None


def test_no_package_imports_one_above_it():
    wrong = [
        f"{path}: {module} imports {target}"
        for package, module, target, path in edges()
        for other in ORDER[ORDER.index(package) + 1 :]
        if target == other or target.startswith(other + ".")
    ]
    assert not wrong, "\n".join(wrong)


def test_no_property_that_is_computed_once_has_a_lock():
    """A forked child would wait for it (gensor_database/lazy.py)."""
    wrong = [str(path) for *_, target, path in edges() if target == "functools.cached_property"]
    assert wrong == ["database/lazy.py"]


def test_folder_names_are_never_imported():
    wrong = [
        f"{path}: imports {target}" for _, _, target, path in edges() if target.split(".")[0] in ("database", "tuner")
    ]
    assert not wrong, "\n".join(wrong)


def test_inside_the_runtime_imports_point_downwards():
    wrong = []
    for package, module, target, path in edges():
        if not target.startswith(package + ".") or package not in INSIDE or module == package:
            continue
        here, there = layer(package, module), layer(package, target)
        if here is not None and there is not None and there > here:
            wrong.append(f"{path}: {module} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_only_one_file_imports_cupy():
    users = {str(path) for _, _, target, path in edges() if target.split(".")[0] in ("cupy", "cupyx")}
    assert users <= {"gensor_kernels/devices/cuda.py"}, users


@pytest.mark.parametrize("folder", ["database", "tuner"])
def test_folders_refuse_a_second_import(folder):
    done = subprocess.run([sys.executable, "-c", f"import {folder}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"gensor_{folder}" in done.stderr


def test_importing_the_runtime_loads_nothing_heavy():
    code = (
        "import sys; before = set(sys.modules); import gensor_kernels; "
        "print(*sorted({n.split('.')[0] for n in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "gensor_kernels" in loaded
    assert not loaded & {"cupy", "typer", "tqdm", "sqlite_utils", "cuda", "gensor_tuner", "hypothesis", "opt_einsum"}


def test_importing_the_runtime_leaves_to_first_calls_what_they_need():
    code = "import sys, gensor_kernels; print(*(n for n in sys.modules if n.startswith('gensor_kernels.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {name.removeprefix("gensor_kernels.") for name in done.stdout.split()}
    late = ("programs", "machine", "build", "devices", "record_file", "shape_row", "operators.declaration")
    assert not [name for name in modules if name.startswith(late)]
    assert not modules & {"operators.matmul", "operators.workload", "dispatch.runtime", "dispatch.calls"}
