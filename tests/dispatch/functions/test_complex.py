"""Complex arrays through the public functions inside `emulated(...)`, against sums of their parts in float64."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gensor_kernels as gk
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.epilogue import Step
from tests.dispatch.emulated_calls import FORMS, aligned, laid_out, pick
from tests.doubles.stored import SIMT

pytestmark = pytest.mark.usefixtures("kernels", "emulated")

EXAMPLES = max(100, settings.default.max_examples)
TYPES = ("complex64", "complex128")
CONJUGATED = [("s*", "s", "s"), ("s", "s*", "s"), ("s*", "s*", "s")]
#: Few classes, so that a run builds few libraries: any strides, conjugated or not, and vectors with a split.
CLASSES = {
    "sm_87": {
        (t, t, math): [("sss", False, SIMT, False), ("knn", True, SIMT, True)]
        + [(layouts, False, SIMT, False) for layouts in CONJUGATED]
        for t in TYPES
        for math in ("ieee", "3m")
    }
}


def normal(rng, shape, dtype, odd=0):
    """Normal numbers in both parts; `odd` parts are NaN or infinite."""
    array = aligned(shape, np.dtype(dtype))
    array[...] = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    if odd and array.size:
        flat = array.reshape(-1).view(array.real.dtype)
        flat[rng.integers(0, flat.size, odd)] = rng.choice([np.nan, np.inf, -np.inf], odd)
    return array


def expected(a, b, dtype, math="ieee", steps=()):
    """The product of (..., m, k) and (..., k, n), with the project's bound."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    wanted = matmul.workload(m, n, k, dtype=dtype, math=math, epilogue=[step.name for step in steps])
    return matmul.expect(a, b, wanted, steps)


def epilogue(rng, shape, dtype):
    """(keywords, steps) of a few operations, with real and complex operands and scalars."""

    def operand():
        array = normal(rng, shape[int(rng.integers(len(shape) + 1)) :], dtype)
        return array if rng.integers(3) else array.real.copy()

    listed, steps = [], []
    for name in (pick(rng, ["scale", "bias", "add", "mul", "mask", "cast"]) for _ in range(rng.integers(0, 4))):
        x = operand() if name in ("bias", "add", "mul") else rng.integers(0, 2, shape).astype(np.int8)
        s = pick(rng, [0.5, -2.0, 1.5 - 0.25j]) if name == "scale" else -1.25
        entry = {"scale": (name, s), "mask": (name, x, s), "cast": name}.get(name, (name, x))
        listed.append(entry)
        steps.append(Step(name, x if name not in ("scale", "cast") else None, s))
    return ({"epilogue": listed} if listed else {}), steps


def matmul_call(rng, t, math, seen):
    """A call of matmul: batches, layouts, real operands, epilogues, NaN and infinities."""
    m, n, k = (int(pick(rng, [1, 15, 17, 33, 64, int(rng.integers(2, 140))])) for _ in "mnk")
    lead, odd = pick(rng, [(), (), (2,), (1, 3)]), pick(rng, [0, 0, 0, 2])
    forms = [pick(rng, FORMS) for _ in "ab"]
    a = laid_out(normal(rng, (*lead, m, k), t, odd), forms[0])
    b = laid_out(normal(rng, (k, n) if rng.integers(2) else (*lead, k, n), t, odd), forms[1])
    if rng.integers(6) == 0:
        b = b.real
        seen["real operand"] += 1
    keywords, steps = epilogue(rng, (*lead, m, n), t)
    seen.update([f"{t} {math}", *forms, *(step.name for step in steps), *["odd"] * bool(odd), *["batch"] * bool(lead)])
    if math == "3m":
        keywords["precision"] = math
    if rng.integers(3) == 0:
        keywords["out"] = laid_out(np.zeros((*lead, m, n), t), pick(rng, ["C", "F", "stepped"]))
        seen["out"] += 1
    why = gk.explain(gk.matmul, a, b, **keywords)
    return why, gk.matmul(a, b, **keywords), expected(a, b, t, math, steps)


def test_random_calls_agree(kernels):
    seen = Counter()

    @settings(max_examples=EXAMPLES)
    @given(st.integers(0, 2**63))
    def agree(seed):
        rng = np.random.default_rng(seed)
        t, math = pick(rng, TYPES), pick(rng, ["ieee", "ieee", "3m"])
        with np.errstate(all="ignore"):
            why, found, wanted = matmul_call(rng, t, math, seen)
        assert why.kernel in kernels, why  # nothing but a generated kernel
        assert found.dtype == t
        verdict = tolerance_base.check(found.reshape(wanted.values.shape), wanted)
        assert verdict.ok, f"{verdict.message}\n{why}\n{why.workload}"
        seen[f"form {why.program['form']}"] += 1

    agree()
    print("\n".join(f"{count:6d} {name}" for name, count in sorted(seen.items())))
    names = {f"{t} {math}" for t in TYPES for math in ("ieee", "3m")} | {*FORMS, "odd", "batch", "out", "real operand"}
    names |= {"scale", "bias", "add", "mul", "mask", "cast", "form 3", "form 4"}
    assert not {name: seen[name] for name in names if seen[name] < 2}, seen


def test_conjugation_costs_no_copy_where_arrays_are_taken_as_they_lie():
    rng = np.random.default_rng(5)
    a, b = normal(rng, (40, 24), "complex64"), normal(rng, (40, 32), "complex64")
    why = gk.explain(gk.einsum, "ki,kj->ij", a, b, conjugate=0)
    assert why.staged is None and '"a":"m*"' in why.workload
    assert gk.explain(gk.vdot, a, a).staged is None
    # The result's last axis is one of the first operand: the operands change places, and so do their flags.
    assert '"b":"n*"' in gk.explain(gk.einsum, "ki,kj->ji", a, b, conjugate=0).workload
    three = gk.einsum("ki,kj,jl->il", a, b, b.T.copy(), conjugate=(0, 2), optimize="greedy")
    np.testing.assert_allclose(three, a.conj().T @ b @ b.T.conj(), rtol=1e-4, atol=1e-3)
    with pytest.raises(ValueError, match="conjugate names operands 0 to 1"):
        gk.einsum("ki,kj->ij", a, b, conjugate=2)


def test_an_out_that_overlaps_its_operands():
    a = normal(np.random.default_rng(6), (24, 24), "complex64")
    b = a.copy()
    assert gk.dot(a, a, out=a) is a
    np.testing.assert_allclose(a, b @ b, rtol=1e-4, atol=1e-3)


def test_what_complex_numbers_lack_is_said():
    a, real = np.ones((4, 4), np.complex64), np.ones((4, 4), np.float32)
    for name in ("relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"):
        with pytest.raises(gk.UnsupportedError, match=f"'{name}' is not defined for complex"):
            gk.matmul(a, a, activation=name)
    with pytest.raises(TypeError, match="bias takes no complex number where the result is float32"):
        gk.matmul(real, real, bias=a)
    with pytest.raises(TypeError, match="scale takes no complex number"):
        gk.matmul(real, real, alpha=1j)
    with pytest.raises(TypeError, match="Cannot cast"):
        gk.matmul(a, a, dtype=np.float32)


def test_warm_calls_take_new_scalars():
    a = np.full((8, 8), 1 + 1j, np.complex64)
    for alpha in (0.5, 2.0, 0.5 + 1j, 3 - 2j, np.complex64(1j), 1.5):
        np.testing.assert_allclose(gk.matmul(a, a, alpha=alpha), alpha * (a @ a))
