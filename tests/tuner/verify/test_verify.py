"""The verifier, on the emulator and on a device: right kernels pass every case, each wrong one has its outcome."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from unittest.mock import Mock

import pytest

from gensor_database.record import Kernel, Record, Verification
from gensor_database.store import Store
from gensor_kernels.devices import cuda
from gensor_kernels.dispatch.selection.library import code
from gensor_kernels.errors import MachineError
from gensor_kernels.families.contraction.cases import granularity
from gensor_kernels.families.core.cases import generic_epilogue
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.gpu import GpuError, open_gpu
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import Row
from gensor_tuner.verify.device_process import DeviceVerifier
from gensor_tuner.verify.on_device import verify_on
from gensor_tuner.verify.verify import check_compilers, verified_epilogue, verify
from tests.doubles import spoiled


def smallest(family: str, workload, arch="sm_87", **values) -> Candidate:
    """A small legal Program of a family: the smallest starter, with some coordinates changed."""
    space = Space(workload, lookup(arch)).family(family)
    starters = FAMILIES[family].starters(workload, lookup(arch))
    program = min(starters, key=lambda each: each["block_m"] * each["block_n"]).replace(**values)
    assert space.legal(space.point(program)[None])[0], program
    return candidate(FAMILIES[family], program, workload)


HALF = matmul.workload(256, 256, 4096, dtype="float16")
FLOAT = matmul.workload(256, 256, 4096, dtype="float32")


@pytest.mark.parametrize(("family", "workload"), [("contraction_mma", HALF), ("contraction_simt", FLOAT)])
def test_cases_meet_the_definition_of_verified(family, workload):
    for split in (1, 4):
        each = smallest(family, workload, split_k=split)
        tile = each.family.tile(each.program)
        found = [each.workload.size for each in each.family.cases(each.program, workload, generic_epilogue(workload))]
        main = found[0]
        assert main["m"] >= 2 * tile["m"] + 1 and main["m"] % tile["m"]
        assert main["n"] >= 2 * tile["n"] + 1 and main["n"] % tile["n"]
        iterations = -(-main["k"] // tile["k"])
        per_split = -(-iterations // split)
        last = iterations - per_split * (split - 1)
        assert main["k"] % tile["k"] and last > tile["stages"] + 2
        assert (per_split != last) == (split > 1)
        assert {case["k"] for case in found} >= {0, main["k"]} and max(case["batch"] for case in found) > 1
        step = granularity(workload)
        assert all(case["n"] % step["n"] == 0 and case["k"] % step["k"] == 0 for case in found)


@pytest.mark.parametrize(
    ("family", "workload", "arch"),
    [
        ("contraction_mma", HALF, "sm_87"),
        ("contraction_mma", HALF, "sm_75"),
        ("contraction_mma", matmul.workload(64, 64, 64, dtype="int8", trans_b=True), "sm_80"),
        ("contraction_simt", FLOAT, "sm_87"),
        ("contraction_simt", matmul.workload(63, 61, 59, dtype="float64", trans_a=True), "sm_90"),
    ],
)
def test_right_kernels_pass_with_every_branch_taken(family, workload, arch):
    each = smallest(family, workload, arch)
    verdict = verify(each, workload)
    assert verdict.outcome == "ok", verdict.detail
    assert 0 < verdict.worst <= 1 or workload.accumulator == "int32"
    assert all(verdict.branches[name] for name in each.family.branches(each.program, workload))
    assert verdict.runs >= 7


@pytest.mark.parametrize(
    ("out", "epilogue"), [("float32", ("bias",)), ("float16", ("relu", "add")), ("bfloat16", ("mul", "relu"))]
)
def test_integer_sums_take_operands_of_a_float_result(out, epilogue):
    """The steps before the first float operand are exact."""
    workload = matmul.workload(64, 64, 64, dtype="int8", out=out, epilogue=epilogue)
    for family in ("contraction_simt", "contraction_mma"):
        assert verify(smallest(family, workload, epilogue_fixed=1), workload).outcome == "ok"


def test_verdicts_are_cached_and_a_source_that_does_not_compile_has_one(monkeypatch, tmp_path):
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path))
    each = smallest("contraction_simt", FLOAT)
    first = verify(each, FLOAT)
    (path,) = (tmp_path / "verdicts").glob("*.json")
    assert json.loads(path.read_text())["outcome"] == "ok"
    assert verify(each, FLOAT) == first
    path.write_text('{"outcome": "ok"')
    assert verify(each, FLOAT).outcome == "ok"
    with monkeypatch.context() as patch:  # a family that asks for another branch, or another case, asks again
        patch.setattr(type(each.family), "branches", lambda *_: frozenset({"unknown"}))
        assert verify(each, FLOAT).detail == "branches never taken: unknown"
    with monkeypatch.context() as patch:
        cases = each.family.cases
        patch.setattr(type(each.family), "cases", lambda _, *of: cases(*of)[:-1])
        assert verify(each, FLOAT).sizes == first.sizes[:-1]
    each = smallest("contraction_simt", FLOAT)
    monkeypatch.setattr(Candidate, "source", lambda self: "this is not C++")
    assert verify(each, FLOAT, use_cache=False).outcome == "not_compiled"


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


def test_the_command_verifies_on_the_device(gensor_tune, monkeypatch, tmp_path):
    monkeypatch.setattr("gensor_tuner.cli.tuning.open_gpu", spoiled.of)
    (tmp_path / "shapes.csv").write_text("op,m,n,k,dtype\nmatmul,40,48,64,fp32\n")
    options = ("--arch", "sm_87", "--top", "1", "--jobs", "1", "--measure", "never", "--verify", "device")
    code, out, err = gensor_tune("--shapes", "{}/shapes.csv", "--db", "{}/k.db", *options)
    assert code == 0 and out.splitlines()[-1].split()[-1] == "device", err


def test_a_cache_folder_that_cannot_be_written_is_named_before_any_work_and_a_verifier_is_needed(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "TemporaryFile", Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS))))
    with pytest.raises(MachineError, match=r"cache folder .* \(Read-only file system\): .*set GENSOR_CACHE_DIR"):
        check_compilers("emulator", 1)
    check_compilers("none", 1)
    with Store.open(tmp_path / "k.db") as store, pytest.raises(ValueError, match="DeviceVerifier"):
        Run(ARCH, store, Options(verify="device"))


def test_too_little_memory_is_named_before_nvrtc_ends_the_process(tmp_path):
    (tmp_path / "shapes.csv").write_text("op,m,n,k\nmatmul,64,64,64\n")
    command = "ulimit -v 450000; python=$0; exec $python -m gensor_tuner.cli.start --arch sm_87 --jobs 2 "
    command += "--shapes shapes.csv --db k.db --measure never"
    done = subprocess.run(["bash", "-c", command, sys.executable], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "") and not (tmp_path / "k.db").exists()
    assert "may use 439 MiB of memory (ulimit -v), and compilers need 1408 MiB with --jobs 2" in done.stderr


def coded(candidate, workload, target="sm_87"):
    return code(candidate.family.text, candidate.family.constants(candidate.program, workload), target)


def judged(after):
    each = smallest("contraction_mma", HALF, split_k=2)
    return verify_on(spoiled.device(after), each, coded(each, HALF), HALF)


@pytest.mark.parametrize(
    ("family", "workload"),
    [
        ("contraction_mma", HALF),
        ("contraction_simt", FLOAT),
        ("contraction_mma", matmul.workload(64, 64, 4096, dtype="int8", trans_b=True, epilogue="bias_relu")),
        ("contraction_simt", matmul.workload(63, 61, 4095, dtype="bfloat16", trans_a=True)),
    ],
)
def test_correct_kernels_pass_the_emulators_cases(family, workload):
    split = 3 if workload in (HALF, FLOAT) else 1
    each = smallest(family, workload, split_k=split)
    verdict = verify_on(spoiled.device(), each, coded(each, workload), workload)
    assert verdict.outcome == "ok", verdict.detail
    assert (verdict.method, verdict.part) == ("device", "orin-nano-8gb")
    assert 0 < verdict.worst <= 1 or workload.accumulator == "int32"
    expected = each.family.cases(each.program, workload, verified_epilogue(each, workload))
    assert [size["name"] for size in verdict.sizes] == [case.name for case in expected]
    assert [size["k"] for size in verdict.sizes] == [case.workload.size["k"] for case in expected]
    assert verdict.runs == len(expected)


SPOILERS = {
    "a wrong number": (spoiled.wrong_number, "wrong", "1 of 7056 outside"),
    "a write behind C": (spoiled.write_behind_result, "wrong", "guard zone around C"),
    "a write between rows": (spoiled.write_between_rows, "wrong", "between the elements of C"),
    "a write into A": (spoiled.write_into_operand, "wrong", "an operand"),
    "a write behind B": (spoiled.write_behind_operand, "wrong", "an operand"),
    "a write before the workspace": (spoiled.write_before_workspace, "wrong", "workspace"),
    "a fault": (spoiled.fault, "failed", "KernelFault"),
    "a refusal": (spoiled.refuse, "not_compiled", "the driver refused"),
}


@pytest.mark.parametrize(("after", "outcome", "words"), SPOILERS.values(), ids=SPOILERS)
def test_wrong_kernels_are_told_by_their_outcome(after, outcome, words):
    verdict = judged(after)
    assert (verdict.outcome, verdict.method) == (outcome, "device") and words in verdict.detail, verdict
    assert outcome == "not_compiled" or "'name': 'blocks'" in verdict.detail
    assert verdict.worst > 1 or after is not spoiled.wrong_number


def asked(after, seconds=60.0):
    each = smallest("contraction_simt", FLOAT)
    with DeviceVerifier(partial(spoiled.device, after), seconds) as verifier:
        return [verifier.verify(each, coded(each, FLOAT), FLOAT) for _ in range(2)]


def test_a_process_serves_one_kernel_after_the_other():
    first, second = asked(None)
    assert first == second and first.outcome == "ok" and first.part == "orin-nano-8gb"
    each = smallest("contraction_simt", FLOAT)
    assert first == verify_on(spoiled.device(), each, coded(each, FLOAT), FLOAT)


GRAVE = {
    "a fault": (spoiled.fault, 60.0, "illegal memory access"),
    "a process that dies": (spoiled.die, 60.0, "ended with 9, 2 times"),
    "a hang": (spoiled.hang, 1.0, "did not end within 1 s, 2 times"),
}


@pytest.mark.parametrize(("after", "seconds", "words"), GRAVE.values(), ids=GRAVE)
def test_the_next_kernel_gets_a_fresh_process(after, seconds, words):
    for verdict in asked(after, seconds):
        assert verdict.outcome == "failed" and verdict.method == "device" and words in verdict.detail, verdict


def test_an_error_that_is_no_kernels_ends_the_run():
    with pytest.raises(MemoryError):
        judged(spoiled.no_memory)
    with pytest.raises(GpuError, match="could not verify a kernel: MemoryError: out of memory"):
        asked(spoiled.no_memory)


@pytest.mark.parametrize(
    ("opener", "words", "telling"),
    [(spoiled.absent, "^CuPy is not installed: a command$", False), (spoiled.broken, "ended with 5", True)],
)
def test_a_device_that_does_not_open_is_a_sentence(opener, words, telling):
    with pytest.raises(GpuError, match=words) as caught, DeviceVerifier(opener):
        pytest.fail("entered")
    assert caught.value.worth_telling == telling


@pytest.mark.gpu
@pytest.mark.parametrize(("family", "workload"), [("contraction_mma", HALF), ("contraction_simt", FLOAT)])
def test_on_a_gpu(family, workload):
    arch = cuda.CudaDevice(0).arch
    each = smallest(family, workload, arch=arch.name, split_k=3)
    with DeviceVerifier(partial(open_gpu, arch)) as verifier:
        verdict = verifier.verify(each, coded(each, workload, arch.target), workload)
    assert (verdict.outcome, verdict.part) == ("ok", arch.part), verdict
    assert 0 < verdict.worst <= 1
