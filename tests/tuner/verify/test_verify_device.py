"""`gensor-tune --verify device` over doubles of a GPU: what it stores, what it resumes, what it passes over."""

import os
import sys
from functools import partial

import pytest

from gensor_database.record import Kernel, Record, Verification
from gensor_database.store import Store
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import Row
from gensor_tuner.verify.device_process import DeviceVerifier
from tests.doubles import spoiled

ARCH = lookup("sm_87")
WORKLOAD = matmul.workload(40, 48, 64, dtype="float32")


def tuned(path, verify, after=None, top=1):
    """(result, verdicts by kernel) of tuning one workload into the database at `path`."""
    with DeviceVerifier(partial(spoiled.device, after)) as verifier, Store.open(path) as store:
        run = Run(ARCH, store, Options(top=top, verify=verify), verifier=verifier if verify == "device" else None)
        ((_, result),) = run.rows([Row(0, "row", workload=WORKLOAD)])
        found = {}
        for row in store.rows(Verification):
            found.setdefault(row.kernel_digest, {})[row.method] = row
        return result, found


def fail_once(path, arrays, workspace):
    """A fault at the first launch of all."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    spoiled.fault(arrays, workspace)


def test_both_verdicts_are_stored_and_a_second_run_resumes(tmp_path):
    result, found = tuned(tmp_path / "k.db", "device")
    assert (result.status, result.verified) == ("ok", "device")
    (verdicts,) = found.values()
    assert {method: row.outcome for method, row in verdicts.items()} == {"emulator": "ok", "device": "ok"}
    assert verdicts["device"].provenance == '{"part":"orin-nano-8gb"}' and verdicts["device"].cases != "[]"
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        assert store.find(WORKLOAD.key(), ARCH.name).verified == "device"
        assert store.portfolio(ARCH.name, ARCH.part, WORKLOAD.class_key())[0].usable
    again, same = tuned(tmp_path / "k.db", "device")
    assert again.stored and (again.kernel, again.verified) == (result.kernel, "device") and same == found


def test_a_kernel_the_emulator_passed_is_verified_on_the_device_later(tmp_path):
    first, found = tuned(tmp_path / "k.db", "emulator")
    assert first.verified == "emulator" and [list(each) for each in found.values()] == [["emulator"]]
    second, found = tuned(tmp_path / "k.db", "device")
    assert not second.stored and (second.kernel, second.verified) == (first.kernel, "device")
    assert sorted(found[first.kernel]) == ["device", "emulator"]


def test_a_kernel_that_fails_on_the_device_is_never_used_again(tmp_path):
    before, _ = tuned(tmp_path / "k.db", "emulator")
    second, found = tuned(tmp_path / "k.db", "device", partial(fail_once, tmp_path / "failed"), top=4)
    assert second.verified == "device" and second.kernel != before.kernel
    row = found[before.kernel]["device"]
    assert row.outcome == "failed" and "illegal memory access" in row.error
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        assert store.kernel(before.kernel).verified == "rejected"
        assert store.find(WORKLOAD.key(), ARCH.name).kernel.digest == second.kernel
        count = len(list(store.rows(Verification)))
    # Without the device, and without the newer record, the rejection still counts.
    with Store.open(tmp_path / "k.db") as store:
        store.connection.execute("DELETE FROM record")
    third, _ = tuned(tmp_path / "k.db", "emulator", top=4)
    assert (third.status, third.kernel) == ("ok", second.kernel)
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        assert {record.kernel_digest for record in store.rows(Record)} == {third.kernel}
        assert len(list(store.rows(Verification))) == count


def test_where_nothing_passes_the_row_fails_and_says_why(tmp_path):
    result, found = tuned(tmp_path / "k.db", "device", spoiled.wrong_number)
    assert result.status == "failed" and "wrong: 1 of " in result.error
    with Store.open(tmp_path / "k.db", readonly=True) as store:
        kernels = [store.kernel(row.digest) for row in store.rows(Kernel)]
    assert kernels and {each.verified for each in kernels} == {"rejected"}
    assert {row["device"].outcome for row in found.values()} == {"wrong"}


def test_the_options_need_a_verifier(tmp_path):
    with Store.open(tmp_path / "k.db") as store, pytest.raises(ValueError, match="DeviceVerifier"):
        Run(ARCH, store, Options(verify="device"))


# ---- the command


@pytest.fixture
def command(monkeypatch, capfd, tmp_path):
    from gensor_tuner.cli import app, commands

    (tmp_path / "shapes.csv").write_text("op,m,n,k,dtype\nmatmul,40,48,64,fp32\n")

    def run(opener):
        monkeypatch.setattr(commands, "open_gpu", opener)
        paths = ("--shapes", tmp_path / "shapes.csv", "--db", tmp_path / "k.db")
        options = ("--arch", "sm_87", "--top", 1, "--jobs", 1, "--measure", "never", "--verify", "device")
        monkeypatch.setattr(sys, "argv", ["gensor-tune", *map(str, (*paths, *options))])
        with pytest.raises(SystemExit) as ended:
            app.main()
        return ended.value.code, *capfd.readouterr()

    return run


def test_the_command_verifies_on_the_device(command):
    code, out, err = command(spoiled.of)
    assert code == 0, err
    assert out.splitlines()[-1].split()[-1] == "device"


def no_cupy(arch):
    return spoiled.absent()


def test_without_a_device_it_says_what_is_missing_before_any_work(command, tmp_path):
    code, out, err = command(no_cupy)
    assert (code, out) == (2, "")
    assert err == "gensor-tune: --verify device needs a GPU of sm_87: CuPy is not installed: a command\n"
    assert not (tmp_path / "k.db").exists()
