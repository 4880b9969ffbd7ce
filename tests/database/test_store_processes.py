"""Several processes on one file: no lock error surfaces, no acknowledged row is lost, none is torn."""

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from functools import partial

import pytest

from gensor_database import ForeignStoreError, LockedStoreError, Record, Store, opening
from gensor_database.opening import write_lock
from tests.doubles.store_rows import ARCH, PART, key, rows

#: Adds workloads, printing each number once its commit is acknowledged.
WRITER = """
import sys
from gensor_database import Store
from tests.doubles.store_rows import rows
with Store.open(sys.argv[1]) as store:
    for number in range(5000):
        store.add(*rows(number))
        print(number, flush=True)
"""


def check_whole(path, acknowledged):
    """Everything acknowledged is there, and every record's rows are complete."""
    with Store.open(path) as store:
        assert store.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        records = list(store.rows(Record))
        assert {key(number) for number in acknowledged} <= {record.key for record in records}
        for record in records:
            entry = store.find(record.key, ARCH, PART)
            assert entry.usable and entry.binary() is not None and entry.stored.source() is not None
            assert len(store.timings(record.key, PART)) == 2
        return len(records)


def test_a_reader_waits_for_the_tables_of_a_file_that_has_just_been_made(tmp_path):
    path = tmp_path / "k.db"
    path.touch()
    maker = threading.Timer(0.3, lambda: Store.open(path).close())
    maker.start()
    with Store.open(path, readonly=True) as store:
        assert not list(store.rows(Record))
    maker.join()


def test_an_empty_file_is_refused_when_nobody_fills_it(tmp_path, monkeypatch):
    path = tmp_path / "k.db"
    path.touch()
    with pytest.raises(ForeignStoreError):
        Store.open(path, readonly=True, timeout=0.1)
    os.utime(path, (0, 0))
    monkeypatch.setattr(opening.time, "sleep", lambda seconds: pytest.fail("an old file is not waited for"))
    with pytest.raises(ForeignStoreError):
        Store.open(path, readonly=True, timeout=60)


def test_a_lock_that_stays_is_named_and_reading_goes_on(tmp_path):
    path = tmp_path / "kernels.db"
    with Store.open(path) as store:
        store.add(*rows(1))
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with Store.open(path, timeout=0.2) as other:
            start = time.monotonic()
            with pytest.raises(LockedStoreError, match="locked by another process"):
                other.add(*rows(2))
            assert time.monotonic() - start < 3
            assert other.find(key(1), ARCH, PART) is not None
            holder.execute("COMMIT")
            holder.close()
            assert other.add(*rows(2)) > 0


@pytest.fixture
def lock(tmp_path):
    """flock of the test's folder, whose lock is held at first, without a write."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield partial(fcntl.flock, descriptor)
    os.close(descriptor)


def test_who_holds_the_queue_and_writes_nothing_is_waited_for_once(tmp_path, lock, monkeypatch):
    """Any process that can open a folder can hold its lock; each transaction would wait for ten minutes."""
    monkeypatch.setattr(opening, "PATIENT", 0.2)
    monkeypatch.setattr(opening, "QUEUE", 1.0)
    waits, queued = [], opening._queue
    monkeypatch.setattr(opening, "_queue", lambda *arguments: waits.append(1) or queued(*arguments))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Store.open(tmp_path / "kernels.db", timeout=0.2) as store:
            for number in range(5):
                store.add(*rows(number))
        (told,) = caught
        assert len(waits) == 1 and f"held a lock on {tmp_path}" in str(told.message)
        with Store.open(tmp_path / "kernels.db", timeout=0.2) as store:
            lock(fcntl.LOCK_UN)
            for thread in threading.enumerate():  # who has given up gets the lock first, and lets go of it
                if thread.name == "gensor-write-lock":
                    thread.join()
            store.add(*rows(5))  # it is free: later callers wait in the queue again
            assert not opening._stalled and len(list(store.rows(Record))) == 6


def test_a_queue_that_moves_is_waited_for(tmp_path, lock, monkeypatch):
    monkeypatch.setattr(opening, "PATIENT", 0.05)
    looks = []

    def written(path):
        looks.append(path)
        if len(looks) == 5:
            lock(fcntl.LOCK_UN)
        return len(looks)  # another state at each look: another process writes

    monkeypatch.setattr(opening, "_file_facts", written)
    with write_lock(tmp_path / "kernels.db", 0.05):
        assert len(looks) >= 5 and not opening._stalled
        with pytest.raises(BlockingIOError):  # the lock is held
            lock(fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_forked_child_uses_a_connection_of_its_own(tmp_path):
    """The parent's connection stays usable, for any actions and any end of the child."""
    with Store.open(tmp_path / "kernels.db") as store:
        store.add(*rows(0))
        mine = store.connection
        for number, leave in ((1, os._exit), (2, sys.exit)):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    store.add(*rows(number))
                    code = 0 if store.connection is not mine and store.find(key(0), ARCH) is not None else 1
                    leave(code)
                finally:
                    os._exit(code)  # without pytest's own frames
            assert os.waitpid(child, 0)[1] == 0
            assert store.connection is mine
            assert store.find(key(number), ARCH, PART) is not None
        store.add(*rows(3))
    assert check_whole(tmp_path / "kernels.db", range(4)) == 4


def test_ctrl_c_in_the_middle_of_a_write_leaves_whole_rows(tmp_path):
    path = tmp_path / "kernels.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline()
        time.sleep(0.05)
        writer.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in writer.stderr.read()
        check_whole(path, {0} | {int(line) for line in writer.stdout if line.endswith("\n")})


def test_writers_take_turns_and_who_waits_in_vain_goes_on(tmp_path):
    """Three wait for a fourth; they have their turns in the order of arrival, and a writer that gave up holds
    nothing."""
    order, threads = [], []
    path = tmp_path / "kernels.db"

    def writer(number, timeout=30.0):
        with write_lock(path, timeout):
            order.append(number)

    with write_lock(path, 0.0):
        for number in range(3):
            threads.append(threading.Thread(target=writer, args=(number,)))
            threads[-1].start()
            time.sleep(0.2)  # the queue is the kernel's: it can only be given time
        writer("in vain", timeout=0.1)
        order.append("first")
    for thread in threads:
        thread.join(30)
    assert order == ["in vain", "first", 0, 1, 2]
    with write_lock(path, 0.0):
        order.append("free")
    with write_lock(tmp_path / "no" / "such" / "folder.db", 0.0):
        order.append("no folder")
    assert order[-2:] == ["free", "no folder"]
