"""The location of a database decides how it is opened: journal modes by file system, read-only places, shipped
files."""

import os
import sqlite3
from pathlib import Path

import pytest

from gensor_database import Kernel, Record, Store, export, layers, open_layers, opening
from tests.doubles.store_rows import ARCH, PART, add_rows, key, rows, stock

LOCAL = ("ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "apfs", "fuseblk", "fuse.overlayfs", "squashfs")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "lustre", "ceph", "beegfs", "gpfs", "glusterfs", "virtiofs")
REMOTE += ("fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.glusterfs", "fuse", "vboxsf")


@pytest.fixture
def mounted(monkeypatch, tmp_path):
    """mounted(kind): the test's folder is on a file system of this kind."""
    ask = opening.is_remote

    def mount(kind):
        table = tmp_path / "mounts"
        table.write_text(f"/dev/root / ext4 rw 0 0\nserver:/x {os.path.realpath(tmp_path)} {kind} rw 0 0\n")
        monkeypatch.setattr(opening, "is_remote", lambda path: ask(path, table))

    return mount


def test_the_journal_mode_follows_from_the_file_system(mounted, tmp_path):
    for kind in LOCAL + REMOTE:
        mounted(kind)
        with Store.open(tmp_path / kind / "kernels.db") as store:
            store.add(*rows(1))
            mode = store.connection.execute("PRAGMA journal_mode").fetchone()[0]
            assert mode == ("delete" if kind in REMOTE else "wal")
            assert os.path.exists(f"{store.path}-shm") is (mode == "wal")  # shared memory, which a network cannot give
            for pragma, value in (("trusted_schema", 0), ("cell_size_check", 1), ("mmap_size", 0), ("synchronous", 3)):
                assert store.connection.execute(f"PRAGMA {pragma}").fetchone() in ((value,), None)


MOUNTS = """overlay / overlay rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb /home/me/local\\040disk ext4 rw 0 0
/dev/sdc /data ext4 rw 0 0
server:/data /data nfs rw 0 0
C: /mnt/c 9p rw 0 0
host:/ /scratch fuse.sshfs rw 0 0
broken
"""


def test_the_file_system_of_a_path_is_that_of_its_last_mount(tmp_path):
    (tmp_path / "mounts").write_text(MOUNTS)
    remote = ("/home/me/x.db", "/data/x.db", "/mnt/c/x.db", "/scratch/x.db")
    for path in (*remote, "/home/me/local disk/x.db", "/homework/x.db", "/x.db"):
        assert opening.is_remote(Path(path), tmp_path / "mounts") is (path in remote)
        assert opening.is_remote(Path(path), tmp_path / "absent") is False


def test_a_database_that_was_moved_to_a_network_is_converted_and_back(mounted, tmp_path):
    path = tmp_path / "db" / "kernels.db"
    for number, (kind, versions) in enumerate([("ext4", b"\2\2"), ("nfs4", b"\1\1"), ("tmpfs", b"\2\2")]):
        mounted(kind)
        with Store.open(path) as store:
            store.add(*rows(number))
            assert all(store.find(key(each), ARCH, PART) for each in range(number + 1))
        assert path.read_bytes()[18:20] == versions


def test_a_database_that_is_read_stays_in_its_mode(mounted, tmp_path):
    mounted("nfs")
    path = tmp_path / "db" / "kernels.db"
    add_rows(path, *rows(1))
    before = path.read_bytes()
    mounted("ext4")
    with Store.open(path, readonly=True) as store:
        assert store.find(key(1), ARCH, PART)
    assert path.read_bytes() == before and os.listdir(path.parent) == ["kernels.db"]


def test_the_packaged_database_is_opened_as_one_that_never_changes(monkeypatch, tmp_path):
    """No lock, no log, no index: it may be on read-only media, and processes do not meet at it."""
    monkeypatch.setattr(layers, "PRETUNED", tmp_path / "pretuned")
    with Store.open(stock(tmp_path / "draft.db", 1)) as draft:
        export(draft, tmp_path / "pretuned" / f"{ARCH}.db", ARCH)
    opened = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *names, **more: opened.append(names[0]) or connect(*names, **more))
    holder = connect(tmp_path / "pretuned" / f"{ARCH}.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")  # which would keep out every caller that needs a lock
    with open_layers(ARCH, timeout=0.0) as stores:
        assert stores.find(key(1), ARCH, PART) is not None
        assert opened == [f"file://{tmp_path}/pretuned/{ARCH}.db?mode=ro&immutable=1"]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            stores.packaged.connection.execute("DELETE FROM record")
    holder.close()
    assert os.listdir(tmp_path / "pretuned") == [f"{ARCH}.db"]


def test_odd_characters_in_paths(tmp_path):
    path = tmp_path / "100% odd? #1 ü" / "kernels&mode=memory.db"
    with Store.open(path) as store:
        store.add(*rows(1))
    assert path.exists()
    with Store.open(path, readonly=True) as store:
        assert [type(row) for row in (*store.rows(Kernel), *store.rows(Record))] == [Kernel, Record]
