"""pyproject.toml against the folders; the wheel and the source archive."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .structure import imported_names, module_name, tracked_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"gensor_kernels": "gensor_kernels", "gensor_database": "database", "gensor_tuner": "tuner"}


def test_extras_are_listed():
    assert {"cu12", "cu13", "tune", "test"} <= set(PROJECT["project"]["optional-dependencies"])
    assert not any("cupy" in line for line in PROJECT["project"]["dependencies"])


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    pytest.importorskip("setuptools", "77")
    source = tmp_path_factory.mktemp("source") / "tree"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    return source


def build(clone: Path, step: str, out: Path) -> Path:
    code = f"from setuptools import build_meta; print(build_meta.{step}({str(out)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=clone, check=True, capture_output=True, text=True)
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(clone, tmp_path_factory) -> Path:
    return build(clone, "build_wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def archived(clone, wheel) -> set[str]:
    """The files of the source archive, which setuptools lists for every build."""
    return set((clone / "gensor_kernels.egg-info" / "SOURCES.txt").read_text(encoding="utf-8").splitlines())


def imports_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {name for names in imported_names(tree, module_name(path), path.endswith("__init__.py")) for name in names}


def test_the_source_archive_builds_and_can_be_tested(archived):
    """With the tests that run anywhere: these, what they import, and what pytest reads with them."""
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in"} <= archived
    assert {path for path in tracked_files() if path.split("/")[0] in (*FOLDERS.values(), "examples")} <= archived
    portable = (ROOT / "tests" / "portable.txt").read_text(encoding="utf-8").splitlines()
    assert all((ROOT / path).is_file() for path in portable)
    needed, left = set(), [*portable, "tests/conftest.py"]
    while left:
        path = left.pop()
        if path not in needed and (ROOT / path).is_file():
            needed.add(path)
            folders = [folder.as_posix() for folder in Path(path).parents][:-1]
            left += [f"{folder}/{name}" for folder in folders for name in ("__init__.py", "conftest.py")]
            left += [name.replace(".", "/") + ".py" for name in imports_of(path) if name.startswith("tests.")]
    assert len(needed) > len(portable) > 10 and "tests/doubles/stored.py" in needed
    assert not needed - archived, sorted(needed - archived)


def test_the_source_archive_leaves_the_bulk_of_the_tests_out(archived):
    assert not {path for path in archived if path.startswith(("benchmarks/", "docs/", "tests/golden/", "."))}
    tests = [path for path in tracked_files() if path.startswith("tests/")]
    size = {path: (ROOT / path).stat().st_size for path in tests}
    assert sum(size[path] for path in archived & size.keys()) < sum(size.values()) / 3


def test_its_page_on_the_registry_leads_to_the_repository(wheel):
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
        lines = opened.read(name).decode().splitlines()
    urls = dict(line.split(": ", 1)[1].split(", ") for line in lines if line.startswith("Project-URL: "))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= urls.keys()
    assert all(url.startswith(urls["Homepage"]) for name, url in urls.items() if name != "Documentation")
    versions = [line.rsplit(" ", 1)[1] for line in lines if line.startswith("Classifier: Programming Language")]
    assert versions[-5:] == ["3.10", "3.11", "3.12", "3.13", "3.14"]


@pytest.mark.skipif(shutil.which("make") is None, reason="the commands of a Makefile")
def test_the_makefile_installs_and_names_what_it_needs(tmp_path):
    def commands(target: str) -> list[str]:
        line = ["make", "-n", target, f"VENV={tmp_path}", f"PYTHON={sys.executable}"]
        text = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return re.findall(r"-m venv|'\.\[\w+\]'|bin/gensor-tune|-m pytest", text)

    line = ["make", "-n", "demo", f"VENV={tmp_path}", f"PYTHON={sys.executable}"]
    told = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"Installing into {tmp_path}, about" in told and "pip install -e '.[tune]'" in told  # not silent for minutes
    assert commands("demo") == ["-m venv", "'.[tune]'", "bin/gensor-tune"]
    assert commands("test") == ["-m venv", "'.[tune]'", "'.[test]'", "-m pytest"]
    (tmp_path / "tuner").touch()
    assert commands("demo") == ["bin/gensor-tune"]
    assert commands("test") == ["'.[test]'", "-m pytest"]
    (tmp_path / "installed").touch()
    assert commands("test") == ["-m pytest"]
    text = subprocess.run(["make", "-n", "test-cupy"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = re.findall(r"tests/\S+\.py", text)
    assert len(named) > 10 and not [path for path in named if not (ROOT / path).is_file()]


def test_the_wheel_carries_sources_tables_and_only_our_packages(wheel):
    assert 10 * 2**20 < wheel.stat().st_size <= 60 * 2**20  # PyPI refuses more than 100 MB
    names = set(zipfile.ZipFile(wheel).namelist())
    renamed = {folder: package for package, folder in FOLDERS.items()}
    parts = [path.partition("/") for path in tracked_files()]
    wanted = {f"{renamed[folder]}/{path}" for folder, _, path in parts if folder in renamed}
    assert wanted <= names, sorted(wanted - names)
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == set(FOLDERS)


def test_packages_in_a_zip_file_are_refused_at_import(tmp_path):
    """g++, SQLite and NVRTC's sources need files, which Python's importer of zip files does not give."""
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as packed:
        for name, folder in (("gensor_kernels", "gensor_kernels"), ("gensor_database", "database")):
            for path in (ROOT / folder).rglob("*.py"):
                packed.write(path, Path(name, path.relative_to(ROOT / folder)))
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "packages.zip")}
    for package in ("gensor_kernels", "gensor_database"):
        command = [sys.executable, "-c", f"import {package}"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        last = done.stderr.splitlines()[-1]
        assert done.returncode == 1 and last.startswith("ImportError: gensor-kernels reads files"), last
        assert "unpack the zip file" in last
