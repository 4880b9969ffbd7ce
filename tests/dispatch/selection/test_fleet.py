"""A database made in one place serves a board that can build nothing and write nowhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gensor_database import Record, Store, Timing
from gensor_kernels.machine.arch import lookup

pytest.importorskip("cupy")

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "database" / "pretuned" / "sm_87.db"
PART = lookup("sm_87").part


@pytest.fixture
def site(tmp_path):
    """A database that a laptop made and a board measured: kernels take half of the library's time."""
    path = tmp_path / "site" / "fleet.db"
    path.parent.mkdir(mode=0o755)
    shutil.copyfile(SHIPPED, path)
    with Store.open(path) as store:
        rows = []
        for record in store.rows(Record):
            place = (record.key, record.arch, PART)
            rows += [Timing(*place, record.kernel_digest, None, 5.0), Timing(*place, None, "cupy.matmul", 10.0)]
        store.add(*rows)
        store.connection.execute("PRAGMA journal_mode=DELETE")
    path.chmod(0o444)
    return path


def board(tmp_path, site, python=sys.executable, most=10_000):
    """The report of the board, and its stderr."""
    (tmp_path / "file").touch()
    (tmp_path / "tmpfs").mkdir()
    nowhere = tmp_path / "file" / "nowhere"  # nothing can be made below a file
    environment = {
        "GENSOR_SITE_DB": str(site),
        "GENSOR_CACHE_DIR": str(nowhere / "cache"),
        "HOME": str(nowhere / "home"),
        "CUPY_CACHE_DIR": str(tmp_path / "tmpfs"),
        "TMPDIR": str(tmp_path / "tmpfs"),
        "PATH": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
    }
    done = subprocess.run(
        [python, "-m", "tests.doubles.site_database_fleet", str(most)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def check(found, stderr, site):
    with Store.open(site, readonly=True) as store:
        records = list(store.rows(Record))
    products = {row.key for row in records if json.loads(row.key)["operator"] == "matmul" and "*" not in row.key}
    assert found["asked"] == len(products) > 100 and found["missed"] == found["library"] == []
    assert found["tiers"] == {"1": found["asked"]} and found["compiled"] == 0 and found["modules"] == []
    assert 0 < found["loads"] <= len({row.kernel_digest for row in records})
    # Sums of int8 that wrap around in an int8 result are said so.
    assert "Traceback" not in stderr and len([each for each in found["warnings"] if "int8" not in each]) <= 1


def test_a_site_database_serves_every_shape_in_it_on_a_bare_board(tmp_path, site):
    before = {path.name: path.read_bytes() for path in site.parent.iterdir()}
    found, stderr = board(tmp_path, site)
    check(found, stderr, site)
    assert {path.name: path.read_bytes() for path in site.parent.iterdir()} == before
    assert not [path for path in (tmp_path / "tmpfs").rglob("*") if path.is_file()]


@pytest.mark.skipif(os.name != "posix", reason="trust follows from permissions")
def test_cubins_of_a_site_database_that_others_can_write_are_not_loaded(tmp_path, site):
    """As the board cannot compile, the library serves."""
    site.chmod(0o666)
    found, _ = board(tmp_path, site, most=8)
    assert found["loads"] == 0 and found["compiled"] == 0
    assert len(found["missed"]) == len(found["library"]) == found["asked"]
