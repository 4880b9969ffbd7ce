"""gensor-tune measure: rows that are timed, kept and skipped, and runs that continue an interrupted one."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gensor_database import Kernel, Record, Store, Timing, Verification, merge
from gensor_kernels.build import nvrtc
from gensor_kernels.devices.device import Code
from gensor_kernels.errors import BuildError
from gensor_tuner.measure import command as measuring
from gensor_tuner.measure.board import Board
from tests.doubles import timed
from tests.doubles.kernels import ARCH, workload
from tests.doubles.stored import SIZES, cubin, kernel_rows, lines, record_of, stock


@pytest.fixture
def measure(gensor_tune, monkeypatch, tmp_path):
    """measure("--budget", "5", plan={...}) -> (exit code, results, stderr) of the database k.db, made by `stock`."""

    def run(*arguments, plan=(), db="k.db", board=timed.Here):
        monkeypatch.setattr(measuring, "Board", board)
        for name, value in timed.DEVICE.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(timed.PLAN, json.dumps(dict(plan)))
        found = tmp_path / "found.jsonl"
        code, out, err = gensor_tune("measure", "--db", tmp_path / db, "--json", found, *arguments)
        return code, lines(found) if found.exists() else [], SimpleNamespace(out=out, err=err)

    return run


def timings(path):
    with Store.open(path, readonly=True) as store:
        return list(store.rows(Timing))


def test_every_stored_candidate_is_timed_beside_the_library(measure, gensor_tune, tmp_path):
    made = stock(tmp_path / "k.db")
    code, found, told = measure(plan={"slow": ["kernel 0"]})
    assert code == 0 and [each["status"] for each in found] == ["ok"] * 3 and "kernels win 3 of 3" in told.err
    rows = timings(tmp_path / "k.db")
    for wanted in made:
        mine = [row for row in rows if row.key == wanted.key()]
        ours = {row.kernel_digest: row for row in mine if row.kernel_digest}
        (vendor,) = [row for row in mine if row.vendor]
        digests = [group[2].digest for group in kernel_rows(wanted)]
        assert set(digests) == set(ours) and {row.part for row in mine} == {ARCH.part}
        assert ours[digests[0]].median_us == pytest.approx(5000) and ours[digests[1]].median_us == pytest.approx(500)
        assert (vendor.vendor, vendor.median_us) == ("cupy.matmul", pytest.approx(2000))
        assert {row.device for row in mine} == {'{"driver":1}'} and json.loads(vendor.samples)["rounds"] == 15
    best = {json.dumps(each["workload"]): each for each in found}
    assert all(each["winner"] and each["measured_us"] < each["vendor_us"] for each in best.values())
    assert found[0]["conditions"] == {"driver": 1} and len(told.out.splitlines()) == 3
    shown = json.loads(gensor_tune("show", "--db", "{}/k.db", "--json")[1].splitlines()[0])
    assert (shown["measured_us"], shown["vendor_us"]) == (pytest.approx(5000), pytest.approx(2000))
    assert f"on {ARCH.part}: 5 ms" in gensor_tune("show", "--db", "{}/k.db", "--kernel", shown["kernel"])[1]


def test_a_second_run_measures_nothing_again_and_new_conditions_everything(measure, tmp_path):
    stock(tmp_path / "k.db")
    measure()
    before = timings(tmp_path / "k.db")
    code, found, told = measure()
    assert code == 0 and [each["status"] for each in found] == ["known"] * 3 and "3 known" in told.err
    assert timings(tmp_path / "k.db") == before and all(each["measured_us"] for each in found)
    code, found, _ = measure(plan={"conditions": {"driver": 2}, "ours": 8000.0})
    assert [each["status"] for each in found] == ["ok"] * 3 and {each["winner"] for each in found} == {None}
    after = timings(tmp_path / "k.db")
    assert len(after) == 2 * len(before) and set(before) <= set(after)


@pytest.mark.parametrize("samples", ['{"race":true}', '{"background":true}'])
def test_only_what_is_missing_is_timed(measure, tmp_path, samples):
    (wanted,) = stock(tmp_path / "k.db", SIZES[:1], kernels=1)
    first = kernel_rows(wanted)[0][2].digest
    with Store.open(tmp_path / "k.db") as store:  # a race's times are of few samples, the other's while a program runs
        place = (wanted.key(), ARCH.name, ARCH.part)
        store.add(Timing(*place, first, None, 4.0, samples, '{"driver":1}'))
    assert measure()[1][0]["status"] == "ok"
    stock(tmp_path / "k.db", SIZES[:1], kernels=3)
    assert measure()[1][0]["status"] == "ok"
    counted = [row.kernel_digest for row in timings(tmp_path / "k.db")]
    assert counted.count(first) == 2 and all(counted.count(g[2].digest) == 1 for g in kernel_rows(wanted)[1:])


def test_what_would_need_compilation_is_said_and_skipped(measure, tmp_path, monkeypatch):
    stock(tmp_path / "full.db")
    with Store.open(tmp_path / "k.db") as store, Store.open(tmp_path / "full.db", readonly=True) as full:
        merge(store, full, binaries=False)
        store.add(*full.rows(Verification))
    before = nvrtc.compile_count()
    code, found, told = measure()
    assert code == 0 and {each["status"] for each in found} == {"unsupported"} and "3 unsupported" in told.err
    assert not timings(tmp_path / "k.db") and nvrtc.compile_count() == before
    assert all("would have to be compiled" in each["error"] for each in found)


def test_cubins_that_others_could_write_are_not_run(measure, tmp_path):
    stock(tmp_path / "k.db")
    os.chmod(tmp_path / "k.db", 0o664)
    code, found, told = measure("--out", str(tmp_path / "times.db"))
    assert code == 0 and {each["status"] for each in found} == {"unsupported"}
    assert "are not loaded: others can write to it" in told.err


def test_reasons_why_a_recorded_kernel_is_not_timed(measure, tmp_path):
    old, unverified, refuted, failed = (workload(*size) for size in ((64,) * 3, (96,) * 3, (160,) * 3, (192,) * 3))
    with Store.open(tmp_path / "k.db") as store:
        source, binary, kernel, _ = kernel_rows(old)[0]
        ancient = Kernel(kernel.family, kernel.abi - 1, *(getattr(kernel, n) for n in kernel.columns()[2:]))
        store.add(source, binary, ancient, record_of(old, ancient))
        _, other, second, _ = kernel_rows(unverified)[1]
        store.add(other, second, record_of(unverified, second))
        _, other, third, passed = kernel_rows(refuted)[2]
        store.add(other, third, passed, Verification(third.digest, "device", "wrong"), record_of(refuted, third))
        place = (failed.key(), ARCH.name, ARCH.part)
        store.add(Record(*place, 0, None, None, None, "failed"))
        store.add(Record("{}", ARCH.name, ARCH.part, 0, None, 1, 1, "ok"))
    code, found, _ = measure()
    assert code == 0 and {each["status"] for each in found} == {"unsupported"} and len(found) == 5
    words = ("another ABI version: gensor-tune refresh", "verified none", "verified rejected", "no stored kernel")
    for expected in (*words, "not a workload of this version"):
        assert any(expected in each["error"] for each in found), (expected, found)


def test_out_of_memory_or_beyond_its_limit_one_shape_is_skipped(measure, tmp_path):
    stock(tmp_path / "k.db", ((64, 64, 64), (4096, 4096, 64)))
    code, found, _ = measure(plan={"memory": 1 << 22})
    assert code == 0 and sorted(each["status"] for each in found) == ["ok", "unsupported"]
    assert "out of device memory: MemoryError: planted: out of memory" in [each["error"] for each in found]
    code, found, _ = measure("--memory", "4M")
    assert code == 0 and "bytes, 4000000 are allowed" in next(each["error"] for each in found if each["error"])
    for wrong in ("0", "lots", "-5", "1.5G", ""):
        code, _, told = measure("--memory", wrong)
        assert code == 2 and "--memory takes a number of bytes" in told.err


def test_the_budget_ends_a_run_and_the_next_goes_on(measure, tmp_path):
    stock(tmp_path / "k.db")
    code, found, _ = measure("--budget", "0")
    assert code == 1 and {each["status"] for each in found} == {"skipped"}
    assert all("the budget of 0 s was spent" in each["error"] for each in found)
    assert measure()[0] == 0 and len({row.key for row in timings(tmp_path / "k.db")}) == 3


def test_rows_of_a_shapes_file(measure, tmp_path):
    stock(tmp_path / "k.db")
    (tmp_path / "s.csv").write_text(
        "op,m,n,k,dtype\nmatmul,64,64,64,fp32\nmatmul,100,64,64,fp32\nmatmul,64,64,64,fp64\nmatmul,x,64,64,fp32\n"
    )
    code, found, _ = measure("--shapes", str(tmp_path / "s.csv"))
    assert code == 1 and [each["status"] for each in found] == ["ok", "ok", "unsupported", "failed"]
    assert found[2]["error"] == "no stored kernel fits it" and "s.csv:5: column 'm'" in found[3]["error"]
    assert len({row.key for row in timings(tmp_path / "k.db")}) == 2  # the portfolio serves 100 x 64 x 64


def test_a_kernel_that_faults_is_rejected_and_the_others_are_timed(measure, tmp_path):
    stock(tmp_path / "k.db", SIZES[:2])
    code, found, _ = measure(plan={"faulty": ["kernel 1"], "refused": ["kernel 0"]})
    assert code == 0 and [each["status"] for each in found] == ["ok"] * 2
    reasons = [reason for each in found for reason in each["left"].values()]
    assert any("Fault: planted" in reason for reason in reasons)
    assert reasons.count("the driver refused the stored cubin: planted") == 2
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        verdicts = list(store.rows(Verification, method="device"))
        timed = {row.kernel_digest for row in store.rows(Timing)}
    assert verdicts and all(row.outcome == "failed" and row.kernel_digest not in timed for row in verdicts)
    assert measure()[0] == 0 and not any("kernel 1" in json.dumps(each) for each in measure()[1])


def test_a_kernel_that_kills_the_process_twice_is_rejected(measure, tmp_path):
    stock(tmp_path / "k.db", SIZES[:1])
    code, (found,), _ = measure(plan={"deadly": ["kernel 2"]}, board=Board)
    assert code == 0 and found["status"] == "ok" and found["kernels"] == 2
    assert list(found["left"].values()) == ["the process that ran it ended with 9"]
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        assert [row.kernel_digest for row in store.rows(Verification, method="device")] == list(found["left"])


def test_a_device_that_always_fails_is_given_up_and_no_kernel_is_blamed(measure, tmp_path):
    stock(tmp_path / "k.db", [(64, 64, 32 * n) for n in range(1, 6)])
    code, found, told = measure(plan={"faulty": [""]})
    assert code == 2 and len(found) == 2 and "failed at 3 workloads one after the other" in told.err
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        assert not list(store.rows(Verification, method="device"))


def test_times_elsewhere_are_what_merge_takes_home_and_where_they_could_go_is_said(measure, tmp_path, monkeypatch):
    made = stock(tmp_path / "k.db")
    before = (tmp_path / "k.db").read_bytes()
    code, _, _ = measure("--out", str(tmp_path / "times.db"))
    assert code == 0 and (tmp_path / "k.db").read_bytes() == before and not timings(tmp_path / "k.db")
    assert {each["status"] for each in measure("--out", str(tmp_path / "times.db"))[1]} == {"known"}
    with Store.open(tmp_path / "k.db") as home, Store.open(tmp_path / "times.db", readonly=True) as brought:
        assert sum(merge(home, brought).values()) == len(timings(tmp_path / "times.db")) == 4 * len(made)
    stock(tmp_path / "k.db")
    (tmp_path / "file").touch()
    code, _, told = measure("--out", str(tmp_path / "file" / "times.db"))
    assert code == 2 and "--out FILE takes the times elsewhere" in told.err


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    """A line of the table is on stdout when its rows are committed. There is neither NVRTC nor g++."""
    stock(tmp_path / "k.db", [(64, 64, 32 * n) for n in range(1, 9)])
    code = (
        "import sys; from tests.doubles.site_database_fleet import Blocker; "
        "sys.meta_path.insert(0, Blocker('cuda.bindings', 'cuda.core')); "
        "from gensor_tuner.cli import app; app.main()"
    )
    line = [sys.executable, "-c", code, "measure", "--db", str(tmp_path / "k.db")]
    environment = {**os.environ, **timed.DEVICE, timed.PLAN: "{}", "PATH": ""}
    first = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True)
    seen = [first.stdout.readline() for _ in range(2)]
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert all(" ok " in each for each in seen)
    done = {row.key for row in timings(tmp_path / "k.db")}
    assert len(done) >= 2
    again = subprocess.run(line, capture_output=True, env=environment, text=True, check=True)
    statuses = [each.split()[3] for each in again.stdout.splitlines()]
    assert statuses.count("known") >= 2 and len(statuses) == 8 and statuses.count("known") + statuses.count("ok") == 8
    rows = timings(tmp_path / "k.db")
    assert len({(row.key, row.kernel_digest) for row in rows}) == len(rows) == 8 * 4


def test_a_cuda_device_that_must_not_compile_does_not(orin):
    device = orin.device()
    device.compiles, made = False, nvrtc.compile_count()
    for image, words in ((b"", "no cubin is stored"), (cubin(0), "refused the stored cubin: CUDA_ERROR_INVALID_IMAGE")):
        with pytest.raises(BuildError, match=words):
            device.load(Code(f"d{image!r}", "int x;", (), "sm_87", image), ())
    assert nvrtc.compile_count() == made
