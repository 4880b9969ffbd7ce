"""Verification on a device, in this process and in another: each fault of a kernel has its outcome."""

from functools import partial

import pytest

from gensor_kernels.devices import cuda
from gensor_kernels.dispatch.selection.library import code, constants
from gensor_kernels.operators.products import matmul
from gensor_tuner.gpu import GpuError, open_gpu
from gensor_tuner.verify.device_process import DeviceVerifier
from gensor_tuner.verify.on_device import verify_on
from gensor_tuner.verify.verify import verified_epilogue
from tests.doubles import spoiled

from .test_verify import FLOAT, HALF, smallest


def coded(candidate, workload, target="sm_87"):
    return code(candidate.family.text, constants(candidate.program, workload), target)


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
    ("opener", "words"), [(spoiled.absent, "^CuPy is not installed: a command$"), (spoiled.broken, "ended with 5")]
)
def test_a_device_that_does_not_open_is_a_sentence(opener, words):
    with pytest.raises(GpuError, match=words), DeviceVerifier(opener):
        pytest.fail("entered")


@pytest.mark.gpu
@pytest.mark.parametrize(("family", "workload"), [("contraction_mma", HALF), ("contraction_simt", FLOAT)])
def test_on_a_gpu(family, workload):
    arch = cuda.CudaDevice(0).arch
    each = smallest(family, workload, arch=arch.name, split_k=3)
    with DeviceVerifier(partial(open_gpu, arch)) as verifier:
        verdict = verifier.verify(each, coded(each, workload, arch.target), workload)
    assert (verdict.outcome, verdict.part) == ("ok", arch.part), verdict
    assert 0 < verdict.worst <= 1
