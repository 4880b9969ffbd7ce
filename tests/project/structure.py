"""The rooms of the project, measured: circles of imports, imports that point up, and folders with too many files.

`python -m tests.project.structure` prints what breaks a rule, one line each, and nothing where all hold. Imports count
in every form: absolute, relative, inside functions, for typing only, and `import_module` of a literal.
"""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
#: Packages by the name under which they are imported, and their folders.
PACKAGES = {
    "gensor_database": "database",
    "gensor_kernels": "gensor_kernels",
    "gensor_tuner": "tuner",
    "benchmarks": "benchmarks",
    "tests": "tests",
}
#: From the ground up: files may import what stands on the same line or on one above it.
ORDER = (
    ("database",),
    (
        *("gensor_kernels/arrays.py", "gensor_kernels/errors.py", "gensor_kernels/config.py"),
        *("gensor_kernels/forking.py", "gensor_kernels/install.py", "gensor_kernels/shown.py"),
        *("gensor_kernels/blocks.py", "gensor_kernels/spelling.py", "gensor_kernels/turns.py"),
        "gensor_kernels/tables.py",
    ),
    ("gensor_kernels/operators",),
    ("gensor_kernels/machine",),
    ("gensor_kernels/families",),
    ("gensor_kernels/build",),
    ("gensor_kernels/devices",),
    ("gensor_kernels/dispatch",),
    ("gensor_kernels/own",),
    ("gensor_kernels/graph",),
    ("gensor_kernels/torch",),
    ("gensor_kernels/own",),
    ("gensor_kernels/__init__.py", "gensor_kernels/__main__.py"),
    ("tuner",),
    ("benchmarks", "tests"),
)
MOST_FILES = 25
SOURCES = (".py", ".cu", ".cuh", ".h", ".cpp", ".c", ".sql", ".toml", ".css", ".js")
#: Folders of results.
RESULTS = ("tests/golden", "benchmarks/results")

Graph = Mapping[str, set[str]]


def tracked_files() -> list[str]:
    """Return the paths that git tracks, or in an unpacked archive all paths below the packages."""
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [path for path in listed.splitlines() if (ROOT / path).exists()]
    except (OSError, subprocess.CalledProcessError):
        found = (path for folder in PACKAGES.values() for path in (ROOT / folder).rglob("*"))
        return [path.relative_to(ROOT).as_posix() for path in found if "__pycache__" not in path.parts]


def module_name(path: str) -> str:
    """Return the name under which a file is imported."""
    parts = PurePosixPath(path).with_suffix("").parts
    top = next((name for name, folder in PACKAGES.items() if folder == parts[0]), parts[0])
    return ".".join((top, *(part for part in parts[1:] if part != "__init__")))


def imported_names(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, ...]]:
    """Yield, for each import in any form, the module names that it may mean, the most specific one first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = module.split(".")
                anchor = anchor[: len(anchor) - node.level + is_package]
                base = ".".join([*anchor, *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}", base) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("import_module", "__import__", "importorskip") and isinstance(node.args[0].value, str):
                yield (node.args[0].value,)


def imports() -> dict[str, set[str]]:
    """Return the files that each Python file of the packages imports, as paths."""
    files = {path for path in tracked_files() if path.endswith(".py") and path.split("/")[0] in PACKAGES.values()}
    modules = {module_name(path): path for path in files}
    found: dict[str, set[str]] = {}
    for path in sorted(files):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        targets = set()
        for names in imported_names(tree, module_name(path), path.endswith("__init__.py")):
            targets.add(next((modules[name] for name in names if name in modules), ""))
        found[path] = targets - {"", path}
    return found


def circle(graph: Graph) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def folders(graph: Graph) -> dict[str, set[str]]:
    """Return the folders that each folder's files import from; an `__init__` hands names on, a `__main__` starts a
    program: both are left out."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, targets in graph.items():
        if path.endswith(("/__init__.py", "/__main__.py")):
            continue
        here = str(PurePosixPath(path).parent)
        found[here] |= {str(PurePosixPath(target).parent) for target in targets if not target.endswith("/__init__.py")}
        found[here].discard(here)
    return found


def rank(path: str) -> int:
    """Return the line of ORDER on which a file stands; ValueError for a file that is on none."""
    for line, places in enumerate(ORDER):
        if any(path == place or path.startswith(f"{place}/") for place in places):
            return line
    raise ValueError(f"{path} has no place in the order of imports")


def crowded_folders() -> dict[str, int]:
    counts = Counter(str(PurePosixPath(path).parent) for path in tracked_files() if path.endswith(SOURCES))
    return {folder: count for folder, count in counts.items() if count > MOST_FILES and folder not in RESULTS}


def complaints() -> list[str]:
    graph = imports()
    edges = [(path, target) for path, targets in graph.items() for target in sorted(targets)]
    found = [f"circle of imports: {' '.join(names)}" for names in (circle(graph), circle(folders(graph))) if names]
    found += [f"{path} imports {target}, which stands above it" for path, target in edges if rank(target) > rank(path)]
    return found + [f"{folder} has {count} source files" for folder, count in sorted(crowded_folders().items())]


if __name__ == "__main__":
    sys.exit("\n".join(complaints()) or None)
