"""What pyproject.toml lists is what the folders hold."""

import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"gensor_kernels": "gensor_kernels", "gensor_database": "database", "gensor_tuner": "tuner"}


def packages_on_disk() -> set[str]:
    found = set()
    for package, folder in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT / folder).parts
            found.add(".".join((package, *parts)))
    return found


def test_every_package_is_listed():
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages_on_disk()


def test_extras_are_the_documented_ones():
    assert {"cu12", "cu13", "tune", "test"} <= set(PROJECT["project"]["optional-dependencies"])
    assert not any("cupy" in line for line in PROJECT["project"]["dependencies"])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("setuptools", "77")
    out = tmp_path_factory.mktemp("wheel")
    code = (
        "import os, sys; from setuptools import build_meta; os.chdir(sys.argv[1]); "
        "print(build_meta.build_wheel(sys.argv[2]))"
    )
    source = tmp_path_factory.mktemp("source") / "tree"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    subprocess.run([sys.executable, "-c", code, str(source), str(out)], check=True, capture_output=True)
    return next(out.glob("*.whl"))


def test_the_wheel_is_small():
    """What git tracks in the packaged folders, compressed as in a wheel."""
    listed = subprocess.run(
        ["git", "ls-files", *FOLDERS.values()], cwd=ROOT, capture_output=True, text=True, check=True
    )
    packed = sum(len(zlib.compress((ROOT / path).read_bytes(), 1)) for path in listed.stdout.splitlines())
    assert 10 * 2**20 < packed <= 60 * 2**20


def test_the_wheel_carries_sources_tables_and_only_our_packages(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    renamed = {"database/": "gensor_database/", "tuner/": "gensor_tuner/", "gensor_kernels/": "gensor_kernels/"}
    wanted = {
        target + path[len(folder) :]
        for path in tracked
        for folder, target in renamed.items()
        if path.startswith(folder)
    }
    assert wanted <= names, sorted(wanted - names)
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == set(FOLDERS)
