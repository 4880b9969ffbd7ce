"""Operand sets, the vendor's side of a timing, and the timer's rounds, on a device whose library is NumPy."""

from itertools import product
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from gensor_kernels.devices import cuda
from gensor_kernels.errors import ToolMissingError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.attention import sequences
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.types.workload import View
from gensor_tuner.gpu import GpuError
from gensor_tuner.measure import timer
from gensor_tuner.measure.operands import POISON, Noise, Operands
from tests.doubles.device import FakeDevice, emulate, wide_product

ARCH = lookup("sm_87")


@pytest.fixture(scope="module")
def device():
    return FakeDevice(ARCH, emulate, multiply=wide_product)


@pytest.fixture(scope="module")
def noise(device):
    return Noise(device)


def values(block, device):
    array = block.view(device.xp)
    if block.dtype == "bfloat16":
        array = array.view(ml_dtypes.bfloat16)
    return array.astype(np.float64)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int8"])
def test_the_vendor_computes_the_kernels_problem(device, noise, dtype):
    for epilogue, batch in product(("none", "bias_relu", "scale_mask", "bias_add_gelu", "mul_scale_silu"), (1, 3)):
        workload = matmul.workload(24, 40, 32, batch=batch, dtype=dtype, trans_b=True, epilogue=epilogue)
        operands = Operands(device, workload, noise)
        found = operands.vendor()()
        steps = [Step(n, None if b is None else values(b, device), s) for n, b, s in operands.steps]
        a, b = (operands.blocks[name] for name in "ab")
        expected = matmul.expect(a.view(np), b.view(np), workload, steps, integer_steps=operands.integer_steps)
        # The library rounds the product to the operands' type before the epilogue, and int8's to float32.
        rounded = 8 * max(facts(dtype).unit_roundoff, 2.0**-24) * (abs(values(a, device)) @ abs(values(b, device)))
        bound = expected.bound + (rounded if steps else 0.0)
        result = operands.blocks["c"].view(np) if found is None else np.asarray(found).reshape(expected.values.shape)
        assert tolerance_base.check(result, expected._replace(bound=bound)).ok


def test_arrays_are_laid_out_as_their_class_says(device, noise):
    stepped = View((1, 30, 20), (0, 41, 2), "float16")
    odd = matmul.workload_from_operands(
        stepped, View((1, 20, 6), (0, 1, 20), "float16", 8), View((1, 30, 6), (0, 6, 1), "float16", 4)
    )
    operands = Operands(device, odd, noise, guard=64, exact=True)
    a, b, c = (operands.blocks[name] for name in "abc")
    assert a.strides == (30 * 41, 41, 2) and b.strides[1:] == (1, 20) and c.strides[1:] == (6, 1)
    for name, block in operands.blocks.items():
        align = odd.align[name]
        assert operands.address(block) % align == 0
        assert align == 16 or operands.address(block) % (2 * align)
        before, behind = block.around()
        assert len(before) >= 64 and len(behind) >= 64
        assert (np.concatenate([before, behind]) == POISON).all()
    assert np.isnan(c.view(np)).all() and np.isfinite(a.view(np)).all()


def test_rows_and_sets_differ_and_ends_of_sequences_ascend_in_each(device, noise):
    workload = matmul.workload(64, 64, 4096, dtype="float16")
    first, second = Operands(device, workload, noise, 0), Operands(device, workload, noise, 1)
    rows = first.blocks["a"].view(np)[0]
    assert len(np.unique(rows, axis=0)) == 64
    assert not np.array_equal(rows, second.blocks["a"].view(np)[0])
    assert abs(float(rows.astype(float).std()) - 1) < 0.01
    workload = sequences.workload(5, 60, 320, heads=2, head=16, page_size=16, table=4)
    for seed in (0, 1, 7):
        made = Operands(device, workload, noise, seed)
        ends = made.blocks["f"].view(np)
        assert (np.diff(ends) >= 0).all() and ends[-1] <= 60
        # Sequences without keys, and pages that K and V do not have, are where the operator draws them.
        assert made.blocks["g"].view(np)[2] == 0 and (made.blocks["h"].view(np)[1] == -1).all()


class Clock:
    """Counts calls instead of timing them: a microsecond each."""

    def __init__(self):
        self.sets = set()

    def measure(self, calls):
        self.sets.update(map(id, calls))
        return len(calls) * 1e-6


def test_sets_exceed_twice_the_cache_and_rounds_are_interleaved(device, monkeypatch):
    order = []

    def launcher(self, kernel, code):
        return lambda: order.append(kernel)

    monkeypatch.setattr(Operands, "launcher", launcher)
    clock = Clock()
    made = timer.Timer(device, clock)
    workload = matmul.workload(256, 256, 256, dtype="float16")
    found = made.times(workload, [("x", None), ("y", None)])
    sets = len(clock.sets) / 3
    assert sets * workload.bytes_moved() >= 2 * ARCH.l2_mb * 1e6
    assert [time.rounds for time in found.timed] == [timer.ROUNDS] * 2
    assert found.timed[0].calls == timer.MOST_CALLS and found.vendor is not None
    assert found.timed[0].median_us == pytest.approx(1.0)


BUSY = "cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable"


@pytest.mark.parametrize(
    ("here", "part", "words"),
    [
        (ToolMissingError("no GPU: a sentence"), "sm_87", "a sentence"),
        ("sm_90", "sm_87", "sm_90, not sm_87"),
        ("h200", "h100-sxm", r"the GPU here is h200, times of h100-sxm .* --arch h200"),
        (RuntimeError(BUSY), "sm_87", "busy or unavailable"),
    ],
)
def test_a_gpu_that_cannot_time_is_a_sentence(monkeypatch, here, part, words):
    def current():
        if isinstance(here, ToolMissingError):
            raise here
        return lambda: 0

    def device(number):
        if isinstance(here, RuntimeError):
            raise here
        return SimpleNamespace(arch=lookup(here), unsupported="")

    monkeypatch.setenv("CUPY_TF32", "0")  # else open_timer sets it for the whole process
    monkeypatch.setattr(cuda, "current_device", current)
    monkeypatch.setattr(cuda, "CudaDevice", device)
    with pytest.raises(GpuError, match=words) as caught:
        timer.open_timer(lookup(part))
    assert caught.value.worth_telling != isinstance(here, ToolMissingError)
