"""Files that commands write: replaced whole, through no link of somebody else's, and never in place of a device."""

import fcntl
import json
import os
import stat
from unittest.mock import Mock

import pytest

from gensor_database import Store, StoreError, union, writing
from gensor_database.exchange import compact
from gensor_kernels import record
from gensor_kernels.dispatch.observe import record_file
from tests.doubles.store_rows import umask
from tests.doubles.stored import stock

#: Commands that write a text file; FILE is its name.
COMMANDS = {
    "json rows": ("export", "FILE", "--json", "--db", "{}/k.db"),
    "records": ("export", "FILE", "--db", "{}/k.db"),
    "report": ("report", "-o", "FILE", "--db", "{}/k.db"),
    "junit": ("check", "--baseline", "{}/runs", "--junit", "FILE"),
    "verify": ("verify", "--json", "FILE", "--db", "{}/k.db"),
    "merge": ("merge", "{}/k.db", "--json", "FILE", "--db", "{}/k.db"),
}
#: Commands that write a whole database.
DATABASES = {
    "export": ("export", "{}/x.db", "--arch", "sm_87", "--db", "{}/k.db"),
    "pretune": ("pretune", "--arch", "sm_87", "--shapes", "{}/none.csv", "--out", "{}/x.db"),
    "merge": ("merge", "{}/k.db", "-o", "{}/x.db"),
}


@pytest.fixture
def gensor_tune(gensor_tune, tmp_path):
    """gensor_tune("show", "--db", "{}/x.db") -> (exit code, stdout, stderr); {} is a fresh folder with k.db."""
    stock(tmp_path / "k.db", ((64, 64, 64),), kernels=1)
    runs = tmp_path / "runs"
    runs.mkdir()
    times = [{"name": "test_a", "fullname": "test_a", "stats": {"median": 1.0, "iqr": 0.1}}]
    for day in range(1, 10):
        body = {"machine_info": {"node": "here"}, "datetime": f"2026-01-0{day}T00:00:00", "benchmarks": times}
        (runs / f"{day}.json").write_text(json.dumps(body))
    return gensor_tune


def named(arguments, file):
    return [str(file) if each == "FILE" else each for each in arguments]


def wide_pipe(path):
    """A new named pipe that holds what a command writes, so that no reader is needed meanwhile; its reading end."""
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 2**20)
    return open(descriptor, encoding="utf-8")


def null_device(path):
    """A double of /dev/null, or None: only root may make one, and not everywhere."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.write_text("nothing")
    except OSError:
        return None
    return path


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_pipes_devices_and_stdout_are_written_through(gensor_tune, tmp_path, monkeypatch, arguments):
    plain, pipe, link = (tmp_path / name for name in ("plain.jsonl", "pipe", "link"))
    assert gensor_tune(*named(arguments, plain))[0] == 0
    for name in (pipe, link):
        with wide_pipe(pipe) as opened:
            if name is link:
                link.symlink_to(pipe)
            code, _, err = gensor_tune(*named(arguments, name))
            assert code == 0 and "Traceback" not in err and opened.read() == plain.read_text()
        assert stat.S_ISFIFO(pipe.stat().st_mode) and link.is_symlink() == (name is link)
        pipe.unlink()
    device = null_device(tmp_path / "null")
    if device is not None:
        assert gensor_tune(*named(arguments, device))[0] == 0 and stat.S_ISCHR(os.lstat(device).st_mode)
    monkeypatch.chdir(tmp_path)
    code, out, err = gensor_tune(*named(arguments, "-"))
    assert code == 0 and out == plain.read_text() and err and not (tmp_path / "-").exists()


@pytest.mark.parametrize("arguments", DATABASES.values(), ids=DATABASES)
def test_a_database_replaces_regular_files_only(gensor_tune, tmp_path, arguments):
    target, pipe, nothing = (tmp_path / name for name in ("x.db", "pipe", "nothing"))
    os.mkfifo(pipe)
    for make in (os.mkfifo, lambda path: path.symlink_to(pipe), lambda path: path.symlink_to(nothing)):
        make(target)
        before = os.lstat(target)
        code, out, err = gensor_tune(*arguments)
        assert code == 2 and not out and "Traceback" not in err and "x.db" in err
        assert "regular file" in err or "not a database file" in err
        assert os.path.samestat(before, os.lstat(target)) and not nothing.exists()
        target.unlink()


def test_recording_to_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.warns(RuntimeWarning, match="no regular file"), record(tmp_path / "pipe"):
        pass
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def refuse(number):
    return Mock(side_effect=OSError(number, os.strerror(number)))


WRITERS = {
    "export --json": lambda folder: ("export", str(folder / "rows.jsonl"), "--json", "--db", "{}/k.db"),
    "export .csv": lambda folder: ("export", str(folder / "records.csv"), "--db", "{}/k.db"),
    "export .db": lambda folder: ("export", str(folder / "small.db"), "--arch", "sm_87", "--db", "{}/k.db"),
    "a recording": None,
}


@pytest.mark.parametrize("arguments", WRITERS.values(), ids=WRITERS)
def test_no_planted_link_is_followed(gensor_tune, tmp_path, arguments):
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    victim.write_text("mine")
    for name in ("rows.jsonl", "calls.csv", "small.db", "records.csv"):  # at names that could be guessed
        (shared / f".{name}.{os.getpid()}.partial").symlink_to(victim)
    planted = {each.name for each in shared.iterdir()}
    if arguments is None:
        record_file.update(shared / "calls.csv", {(("op", "matmul"),): 2})
    else:
        code, _, err = gensor_tune(*arguments(shared))
        assert code == 0, err
    assert victim.read_text() == "mine"
    (made,) = {each.name for each in shared.iterdir()} - planted
    assert not (shared / made).is_symlink() and (shared / made).stat().st_size


def test_a_name_that_is_taken_is_not_written_to(tmp_path, monkeypatch):
    """Were the name guessed after all: the link there is not followed."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(writing.secrets, "token_hex", lambda size: "00")
    (tmp_path / ".gensor-00.partial").symlink_to(victim)
    with pytest.raises(FileExistsError), writing.written(tmp_path / "x.json"):
        pass
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_mode_is_that_of_the_umask_or_of_the_file_that_was_there(tmp_path, mask):
    with umask(mask):
        (tmp_path / "old").touch()
        (tmp_path / "old").chmod(0o640)
        for name in ("old", "new"):
            with writing.written(tmp_path / name) as file:
                file.write("text")
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o666 & ~mask


def test_after_a_failure_everything_is_as_it_was(tmp_path, monkeypatch):
    (tmp_path / "x.json").write_text("old")
    with Store.open(tmp_path / "x.db") as store:
        before = store.path.read_bytes()
    names = {each.name for each in tmp_path.iterdir()}
    with pytest.raises(ZeroDivisionError), writing.written(tmp_path / "x.json") as file:
        file.write("new")
        file.flush()
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), compact(tmp_path / "x.db"):
        raise ZeroDivisionError
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse(28))
            with pytest.raises(OSError, match="No space"), writing.written(tmp_path / "x.json") as file:
                file.write("new")
            with pytest.raises(StoreError, match="No space"):
                union([], tmp_path / "x.db")
    assert (tmp_path / "x.json").read_text() == "old" and (tmp_path / "x.db").read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == names


def test_a_file_that_cannot_be_replaced_is_written_in_place(tmp_path, monkeypatch):
    """One that is a mount, and one in a folder that belongs to somebody else."""
    (tmp_path / "x.json").write_text("a longer text than the new one")
    inode = (tmp_path / "x.json").stat().st_ino
    for name, number in (("replace", 16), ("open", 13), ("open", 30)):
        with monkeypatch.context() as patch:
            patch.setattr(writing.os, name, refuse(number))
            with writing.written(tmp_path / "x.json") as file:
                file.write(f"{name} {number}")
        assert (tmp_path / "x.json").read_text() == f"{name} {number}"
        assert (tmp_path / "x.json").stat().st_ino == inode and len(list(tmp_path.iterdir())) == 1
