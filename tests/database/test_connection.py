"""Connections: journal mode by file system, pragmas, odd paths."""

import os
from pathlib import Path

import pytest

from gensor_database import Kernel, Record, Store, opening
from gensor_database.opening import is_remote
from tests.doubles.store_rows import rows


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("/home/me/x.db", True),
        ("/home/me/local disk/x.db", False),
        ("/homework/x.db", False),
        ("/data/x.db", True),
        ("/mnt/c/x.db", True),
        ("/scratch/x.db", True),
        ("/x.db", False),
    ],
)
def test_network_file_systems_are_recognised(tmp_path, path, remote):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "overlay / overlay rw 0 0\nserver:/home /home nfs4 rw 0 0\n/dev/sdb /home/me/local\\040disk ext4 rw 0 0\n"
        "/dev/sdc /data ext4 rw 0 0\nserver:/data /data nfs rw 0 0\nC: /mnt/c 9p rw 0 0\n"
        "host:/ /scratch fuse.sshfs rw 0 0\nbroken\n"
    )
    assert is_remote(Path(path), mounts) is remote
    assert is_remote(Path(path), tmp_path / "absent") is False


@pytest.mark.parametrize(("remote", "mode"), [(False, "wal"), (True, "delete")])
def test_the_journal_suits_the_file_system(tmp_path, monkeypatch, remote, mode):
    monkeypatch.setattr(opening, "is_remote", lambda path: not remote)
    Store.open(tmp_path / "kernels.db").close()
    monkeypatch.setattr(opening, "is_remote", lambda path: remote)
    with Store.open(tmp_path / "kernels.db") as store:
        assert store.connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
        store.add(*rows(1))
        assert os.path.exists(f"{store.path}-wal") is (mode == "wal")
        for pragma, value in (("trusted_schema", 0), ("cell_size_check", 1), ("mmap_size", 0), ("synchronous", 3)):
            assert store.connection.execute(f"PRAGMA {pragma}").fetchone() in ((value,), None)


def test_odd_characters_in_paths(tmp_path):
    path = tmp_path / "100% odd? #1 ü" / "kernels&mode=memory.db"
    with Store.open(path) as store:
        store.add(*rows(1))
    assert path.exists()
    with Store.open(path, readonly=True) as store:
        assert [type(row) for row in (*store.rows(Kernel), *store.rows(Record))] == [Kernel, Record]
