"""Verification of users' kernels: the examples are right, and each planted fault is reported with line and thread."""

import numpy as np
import pytest

from gensor_kernels.errors import ConfigError, UnsupportedError
from gensor_kernels.own import In, Kernel, Out
from gensor_tuner.own.verify import Check, small
from tests.campaign_size import sample
from tests.own.faults import CASES, FAULTS, KERNELS, WRONG, Fault, configuration

pytestmark = pytest.mark.usefixtures("needs_emulator")  # PTX is compiled by g++


def check(kernel: str, **sizes: int) -> Check:
    _, at, reference = CASES[kernel]
    at = {**at, **sizes}
    return Check(KERNELS[kernel].description, KERNELS[reference], at, at)


@pytest.mark.parametrize("kernel", sample(sorted(CASES), 2))
def test_examples_are_right(kernel: str):
    verdict = check(kernel)(configuration(kernel))
    assert verdict.outcome == "ok", verdict
    assert verdict.worst <= 1


def test_every_fault_is_an_edit_of_its_source():
    assert len(FAULTS) >= 25
    assert len({fault.source for fault in FAULTS}) == len(FAULTS)
    assert all(KERNELS[fault.kernel].source.count(fault.before) > fault.nth for fault in FAULTS)


@pytest.mark.parametrize(
    "fault", sample(FAULTS, 3, len(FAULTS)), ids=lambda fault: f"{fault.kernel}-{fault.before[:24]}"
)
def test_a_fault_is_reported_with_line_and_thread(fault: Fault):
    verdict = check(fault.kernel)(configuration(fault.kernel, fault.source))
    assert verdict.outcome == ("wrong" if fault.report == WRONG else "failed"), verdict
    assert verdict.detail.startswith(fault.report), verdict
    if fault.report != WRONG:
        assert "line " in verdict.detail and "thread" in verdict.detail, verdict


def test_a_reference_that_does_not_fit_is_refused():
    described, at = KERNELS["transpose"].description, CASES["transpose"][1]
    for reference, reason in (
        (
            lambda matrix: matrix[1:].T,
            r"array 0 of the reference has the shape \(40, 19\), the kernel's \(40, 20\), at h=20 w=40",
        ),
        (lambda matrix: (matrix.T, matrix), "returns 2 arrays, the kernel writes 1"),
        (lambda matrix, other: matrix, r"the reference raises TypeError: .* \(given arrays of \(20, 40\)\)"),
    ):
        with pytest.raises(ConfigError, match=reason):
            Check(described, reference, at, at)(configuration("transpose"))


def test_a_kernel_that_hangs_is_bounded():
    text = 'extern "C" __global__ void hang(volatile int *x) { while (x[0] == 0); x[0] = knob; }'
    kernel = Kernel(text, "hang", knobs={"knob": [1]}, block=32, grid=1, args=[Out("i4", 32)])
    made = configuration("transpose").__class__(kernel.description, kernel.source, (("knob", 1),), "sm_87")
    at = {"x": 1}
    text = text.replace("x[0] == 0", "x[0] != 3")
    made = made.__class__(kernel.description, text, (("knob", 1),), "sm_87")
    verdict = Check(kernel.description, lambda: np.zeros(32), at, at)(made)
    assert verdict.outcome == "failed" and "deadlock" in verdict.detail, verdict


def test_what_cannot_be_executed_is_refused_by_name():
    text = """extern "C" __global__ void look(float *out, unsigned long long texture) {
        float x;
        asm("tex.1d.v4.f32.s32 {%0, _, _, _}, [%1, {%2}];" : "=f"(x) : "l"(texture), "r"(knob));
        out[0] = x; }"""
    kernel = Kernel(text, "look", knobs={"knob": [1]}, block=32, grid=1, args=[Out("f4", 1), In("f4", 1)])
    made = configuration("transpose").__class__(kernel.description, kernel.source, (("knob", 1),), "sm_87")
    with pytest.raises(UnsupportedError, match="look has the instruction tex"):
        Check(kernel.description, lambda a: a, {}, {})(made)


def test_sizes_of_verification_keep_their_factors():
    assert small({"w": 4096, "n": 1000, "odd": 4097}) == {"w": 128, "n": 125, "odd": 4097}
