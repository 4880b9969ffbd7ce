"""Which kernel serves a call: records, timings, predictions, and what only the array library may do."""

import ml_dtypes
import numpy as np
import pytest

from gensor_database import Timing
from gensor_kernels.dispatch.calls import arguments, fallback, problem
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.selection import library, predict, tiers
from gensor_kernels.operators.products import matmul as operator
from gensor_kernels.operators.types.epilogue import OPERATIONS, Step
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.programs.space import Space
from tests.doubles.device import FakeDevice
from tests.doubles.kernels import ARCH, starters, workload


def request(wanted, **keywords):
    made = problem.Problem(wanted, Geometry((1, 1, 1)), ())
    return tiers.Request(made, ARCH, **{"emulated": False, "one_call": True, **keywords})


def timing(wanted, median, digest=None):
    return Timing(wanted.key(), ARCH.name, ARCH.part, digest, None if digest else "cupy.matmul", median)


def stocked(wanted, record=False, times=(), vendor=None):
    """A library of the default Programs; `times` are medians of the first of them by digest."""
    kernels = {kernel.digest: kernel for kernel in starters(wanted)}
    digests = sorted(kernels)
    records = {wanted.key(): digests[0]} if record else {}
    rows = [timing(wanted, time, digest) for time, digest in zip(times, digests, strict=False)]
    rows += [timing(wanted, vendor)] if vendor else []
    return library.Library(library.Contents(kernels, records, {wanted.key(): rows})), digests


def test_nothing_stored_goes_to_the_library():
    choice = tiers.choose(request(workload()), library.Library())
    assert choice.tier == 4 and "no timing" in choice.reason
    choice = tiers.choose(request(workload(), one_call=False), library.Library())
    assert choice.tier == 4 and "no kernel is stored" in choice.reason and not choice.standby


def test_predictions_do_not_replace_one_call(monkeypatch):
    wanted = workload()
    shelf, digests = stocked(wanted, record=True)
    choice = tiers.choose(request(wanted), shelf)
    assert choice.tier == 4 and "no timing on orin-nano-8gb" in choice.reason and choice.standby
    captured = tiers.choose(request(wanted, captured=True, loaded=digests), shelf)
    assert captured.tier == 2 and captured.kernel.digest == digests[0]
    assert tiers.choose(request(wanted, one_call=False), shelf).tier == 2
    assert tiers.choose(request(wanted, emulated=True), shelf).tier == 2
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    assert tiers.choose(request(wanted), shelf).tier == 2


def test_kernels_are_ranked_by_the_potential_times_residuals():
    wanted = workload()
    shelf, _ = stocked(wanted)
    choice = tiers.choose(request(wanted, one_call=False), shelf)
    seconds = predict.predict(list(shelf.contents.kernels.values()), wanted, ARCH)
    assert choice.tier == 3 and choice.predicted_us == pytest.approx(min(seconds) * 1e6)
    # Measured elsewhere to take ten times what was predicted, the favourite loses its place.
    other = wanted.with_sizes(m=256)
    (predicted,) = predict.predict([choice.kernel], other, ARCH)
    slow = timing(other, predicted * 1e7, choice.kernel.digest)
    again = library.Library(library.Contents(shelf.contents.kernels, {}, {other.key(): [slow]}))
    assert predict.residual(choice.kernel, again, ARCH) == pytest.approx(10)
    second = tiers.choose(request(wanted, one_call=False), again)
    assert second.tier == 3 and second.kernel.digest != choice.kernel.digest


def test_timings_decide_with_a_tie_band():
    wanted = workload()
    shelf, digests = stocked(wanted, times=[100.9, 100.0, 150.0], vendor=120.0)
    choice = tiers.choose(request(wanted), shelf)
    assert (choice.tier, choice.kernel.digest, choice.vendor_us) == (1, digests[0], 120.0)  # a tie: by digest
    lost, _ = stocked(wanted, times=[100.0], vendor=101.0)  # a tie with the library is not a win
    for one_call in (True, False):
        choice = tiers.choose(request(wanted, one_call=one_call), lost)
        assert choice.tier == 4 and "the library takes 101.0 us" in choice.reason and choice.standby
    assert tiers.choose(request(wanted, captured=True, loaded=digests), lost).tier == 3
    assert tiers.choose(request(wanted, captured=True), lost).tier == 3  # standing by for a graph
    assert tiers.choose(request(wanted, captured=True, loaded=()), lost).tier == 4  # nothing can be loaded now
    assert tiers.choose(request(wanted, emulated=True), lost).tier == 3  # there is no library to lose to
    alone, _ = stocked(wanted, times=[100.0])
    assert tiers.choose(request(wanted), alone).tier == 4  # nothing to compare with is no win
    assert tiers.choose(request(wanted, one_call=False), alone).tier == 1


def test_several_calls_serve_where_they_are_predicted_to_be_faster(monkeypatch):
    wanted = workload()
    for record, times in ((True, ()), (False, ()), (False, [1e4])):  # recorded, predicted; measured, but we alone
        shelf, digests = stocked(wanted, record=record, times=times)
        fused = dict(one_call=False)
        kernel = tiers.choose(request(wanted, **fused), shelf)
        us = kernel.measured_us or kernel.predicted_us
        assert (
            kernel.kernel is not None and tiers.choose(request(wanted, **fused, unfused=lambda: None), shelf) == kernel
        )
        assert tiers.choose(request(wanted, **fused, unfused=lambda us=us: us), shelf) == kernel
        fused["unfused"] = lambda us=us: us * 0.99
        choice = tiers.choose(request(wanted, **fused), shelf)
        how = "measured" if times else "predicted"
        assert choice.tier == 4 and choice.standby and choice.kernel is None and choice.measured_us is None
        assert f"on orin-nano-8gb our best kernel takes {us:.1f} us ({how}), the library's calls" in choice.reason
        assert tiers.choose(request(wanted, **fused, emulated=True), shelf).tier in (2, 3)
        assert tiers.choose(request(wanted, **fused, captured=True, loaded=digests), shelf).kernel is not None
        with monkeypatch.context() as only:
            only.setenv("GENSOR_TUNE", "predicted")
            assert tiers.choose(request(wanted, **fused), shelf) == kernel
    won, _ = stocked(wanted, times=[100.0], vendor=120.0)
    assert tiers.choose(request(wanted, one_call=False, unfused=lambda: 1.0), won).tier == 1  # a timing says more


def test_kernels_of_lesser_classes_fit():
    narrow = workload(510, 510, 510)
    wanted = workload(512, 512, 512)
    shelf, _ = stocked(narrow)
    choice = tiers.choose(request(wanted, one_call=False), shelf)
    assert choice.tier == 3 and choice.kernel.serves.align["a"] == 8
    assert tiers.choose(request(workload(511, 511, 511), one_call=False), shelf).tier == 4
    assert tiers.choose(request(workload(dtype="float64"), one_call=False), shelf).tier == 4
    assert tiers.choose(request(workload(trans_a=True), one_call=False), shelf).tier == 4


def test_a_compiled_epilogue_serves_only_itself():
    wanted = workload(epilogue="bias_relu")
    kernel = next(k for k in starters(wanted) if "epilogue_fixed" in dict(k.program.values))
    fixed = library.generate(kernel.program.replace(epilogue_fixed=1), wanted, ARCH)
    assert fixed.epilogue_codes and fixed.fits(wanted)
    assert not fixed.fits(workload(epilogue="bias")) and not fixed.fits(workload())
    assert kernel.fits(workload(epilogue="bias"))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_predictions_are_the_spaces(dtype):
    wanted = workload(500, 300, 700, dtype=dtype, trans_b=True)
    kernels = list(starters(wanted))
    for kernel, seconds in zip(kernels, predict.predict(kernels, wanted, ARCH), strict=True):
        space = Space(wanted, ARCH).family(kernel.program.family)
        assert seconds == pytest.approx(float(space.potential(space.point(kernel.program)[None])[0]), rel=1e-6)
    off = library.generate(kernels[0].program.replace(split_k=7), wanted, ARCH)
    deep = library.generate(kernels[0].program.replace(split_k=32), wanted.with_sizes(k=64), ARCH)
    assert (
        predict.predict([off], wanted, ARCH) == predict.predict([deep], wanted.with_sizes(k=64), ARCH) == [float("inf")]
    )


# ---- Tier 4 computes what the operators' references say

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


EPILOGUES = ["relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "cast", "scale", "bias", "mul", "mask"]


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, BFLOAT16])
def test_fallback_epilogues_are_the_operators(name, dtype):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 7, 5)).astype(dtype), rng.standard_normal((5, 6)).astype(dtype)
    x = rng.integers(0, 2, 6).astype(dtype) if OPERATIONS[name].takes_operand else None
    steps = (Operation(name, x, 0.5), Operation("scale", None, 0.5))
    call = arguments.resolve(a, b, None, steps)
    found = fallback.evaluate(FakeDevice(), call, a, b, steps)
    reference = [Step(s.name, None if s.operand is None else s.operand.astype(np.float64), s.scalar) for s in steps]
    expected = operator.reference(a, b, reference, np.dtype(dtype).name)
    tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}[np.dtype(dtype).name]
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), expected, atol=tolerance)


def test_integers_stay_exact_in_the_fallback():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (9, 300), np.int8), rng.integers(-128, 128, (300, 4), np.int8)
    x = rng.integers(-(2**30), 2**30, 4).astype(np.int32)
    steps = (Operation("bias", x), Operation("relu"))
    exact = np.maximum((a.astype(np.int64) @ b.astype(np.int64) + x).astype(np.int32), 0)
    for dtype in (np.int32, np.int8, np.float32):
        call = arguments.resolve(a, b, None, steps, dtype=dtype)
        found = fallback.evaluate(FakeDevice(), call, a, b, steps)
        np.testing.assert_array_equal(found, exact.astype(dtype))
    wrapped = fallback.evaluate(FakeDevice(), arguments.resolve(a, b, None, ()), a, b, ())
    np.testing.assert_array_equal(wrapped, np.matmul(a, b))


def test_whole_scalars_are_integer_steps():
    a = np.zeros((2, 2), np.int8)
    x = np.zeros(2, np.int32)

    def count(*steps):
        return fallback.whole_steps(arguments.resolve(a, a, None, steps, dtype="int32").inputs, steps)

    assert count(Operation("bias", x), Operation("scale", None, 3.0), Operation("relu")) == 3
    assert count(Operation("bias", x), Operation("scale", None, 0.5), Operation("relu")) == 1
    assert count(Operation("bias", x.astype(np.float32))) == 0
    assert count(Operation("mask", x, float("inf"))) == 0
    half = arguments.resolve(a.astype(np.float16), a.astype(np.float16), None, (Operation("relu"),))
    assert fallback.whole_steps(half.inputs, (Operation("relu"),)) == 0
