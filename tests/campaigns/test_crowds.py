"""Many processes on one database: no lock error reaches anybody, no row is missing, no Workload is tuned twice.

64 processes x 200 commits, 100 fresh files and 64 processes that tune, with GENSOR_CAMPAIGN=full.
"""

import json
import os
import signal
import subprocess
import sys
import time

from gensor_database import Record, Store
from gensor_kernels.dispatch.tuning.background import claim
from tests.campaign_size import FULL, tell
from tests.conftest import ROOT
from tests.doubles.store_rows import ARCH, PART, key

from .lives.checks import check

PROCESSES, COMMITS = (64, 200) if FULL else (12, 10)
STAMPEDES, STAMPEDING = (100, 16) if FULL else (4, 16)
TUNING = 64 if FULL else 12


def crowd(what, processes, journal, paths, *arguments):
    """Return the exit code of every process, in order; none of them has said anything."""
    files = ",".join(map(str, paths))
    command = [sys.executable, "-m", "tests.campaigns.crowd", what, processes, journal, files, *arguments]
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return sorted(json.loads(done.stdout))


def stored_keys(path):
    with Store.open(path) as store:
        assert store.connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        records = list(store.rows(Record))
        assert all(len(store.timings(record.key, PART)) == 2 for record in records[::50])
        assert all(store.find(record.key, ARCH, PART).usable for record in records[::50])
    return {record.key for record in records}


def test_every_commit_of_every_process_is_there(tmp_path, journal):
    path = tmp_path / "kernels.db"
    assert crowd("commits", PROCESSES, journal, [path], COMMITS) == [0] * PROCESSES
    assert stored_keys(path) == {key(number) for number in range(PROCESSES * COMMITS)}
    seconds = sorted(each for file in tmp_path.glob("seconds.*") for each in json.loads(file.read_text()))
    assert len(seconds) == PROCESSES * COMMITS
    told = [f"{1000 * seconds[int(share * (len(seconds) - 1))]:.1f} ms" for share in (0.5, 0.99, 1.0)]
    tell(f"{PROCESSES} x {COMMITS} commits, {journal}", f"median {told[0]}, 99 % {told[1]}, longest {told[2]}")


def test_stampedes_on_a_file_that_is_not_there_yet(tmp_path, journal):
    paths = [tmp_path / str(number) / "kernels.db" for number in range(STAMPEDES)]
    assert crowd("commits", STAMPEDING, journal, paths, 1) == [0] * STAMPEDING * STAMPEDES
    for path in paths:
        assert stored_keys(path) == {key(number) for number in range(STAMPEDING)}
    tell(f"stampedes, {journal}", f"{STAMPEDES} of {STAMPEDING} processes")


#: Stands for the tuning process: writes down that it was asked, takes its time, stores a kernel. The first one dies.
WORKER = """
import json, os, sys, time
from gensor_database import Record, Store
from tests.doubles.store_rows import ABI, SOURCE, kernel_rows
request = json.loads(sys.stdin.readline())
first = not os.path.exists({asked!r})
with open({asked!r}, "a") as asked:
    print(sys.argv[1], file=asked)
if first:
    os.kill(os.getppid(), 9)
    time.sleep(60)
time.sleep(0.5)
binary, kernel, verification = kernel_rows(0)
workload = json.dumps(request["workload"], sort_keys=True, separators=(",", ":"))
with Store.open(request["db"]) as store:
    record = Record(workload, "sm_87", "orin-nano-8gb", ABI, kernel.digest, 1.0, 1.0, "ok")
    store.add(SOURCE, binary, kernel, verification, record)
print(json.dumps({{"status": "ok", "kernel": kernel.digest, "error": None}}), flush=True)
"""


def test_a_workload_is_tuned_once_although_the_first_process_dies(tmp_path):
    path, asked, code = tmp_path / "kernels.db", tmp_path / "asked", tmp_path / "worker.py"
    code.write_text(WORKER.format(asked=str(asked)))
    ends = crowd("tunes", TUNING, "wal", [path], code)
    assert ends == [-signal.SIGKILL] + [0] * (TUNING - 1)
    assert len(asked.read_text().split()) == 2  # the one that was killed, and the one that took over
    assert check(path, []) == 1 and not list(tmp_path.glob("*.tuning"))
    tell("processes that tune one Workload, the first of them killed", TUNING)


def test_waiting_for_a_claim_has_a_limit(tmp_path):
    database = tmp_path / "kernels.db"
    with claim(database, "a", 0.0) as mine, claim(database, "b", 0.0) as other:
        assert mine and other
        began = time.monotonic()
        with claim(database, "a", 0.2) as again:
            assert not again and 0.2 <= time.monotonic() - began < 5
    with claim(database, "a", 0.0) as mine:
        assert mine
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("")
    with claim(tmp_path / "file" / "kernels.db", "a", 0.0) as mine:  # without locks every claim succeeds
        assert mine
