"""float64 on tensor cores: the instructions' model, where the family serves them, what they are predicted to win."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from tests.devices.test_matrix_models import GROUP, MEMBER, multiply
from tests.doubles.emulated_kernels import toy
from tests.programs.lattices import MMA, SIMT, fastest


@dataclass(frozen=True)
class Shape:
    """An instruction; the place of element i of every lane is that of the PTX ISA (mma with .f64)."""

    mode: int
    m: int
    k: int
    sum_dtype = np.float64

    def a(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        if self.m == 8:
            return GROUP, MEMBER
        first = i * 2 + MEMBER if i % 2 == 0 else i * 2 - 2 + MEMBER
        return GROUP + 8 * (i % 2), first

    def b(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        return MEMBER + 4 * i, GROUP

    def c(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        return GROUP + 8 * (i // 2), MEMBER * 2 + i % 2


SHAPES = [Shape(0, 8, 4), Shape(1, 16, 8), Shape(2, 16, 16)]


@pytest.mark.parametrize("shape", SHAPES)
def test_fragments_lie_as_documented_and_sums_are_chains_of_multiply_adds(shape):
    rng = np.random.default_rng(shape.mode)
    a, b = rng.standard_normal((shape.m, shape.k)), rng.standard_normal((shape.k, 8))
    want = rng.standard_normal((shape.m, 8))
    found = multiply(shape, a, b, want, toy("double_fragments"))
    for k in range(shape.k):
        for i, j in np.ndindex(want.shape):  # float() of a Fraction rounds once, to nearest
            want[i, j] = float(Fraction(a[i, k]) * Fraction(b[k, j]) + Fraction(want[i, j]))
    assert np.array_equal(found, want)


@pytest.mark.parametrize(("part", "least"), [("a100-40gb", 1.9), ("h200", 1.9)])
def test_tensor_cores_are_predicted_to_double_the_rate(part, least):
    """Starters of both families at 4096^3, and which instruction they take."""
    problem, arch = workload(4096, 4096, 4096, dtype="float64"), lookup(part)
    seconds = {family: fastest(family, problem, arch) for family in (MMA, SIMT)}
    assert seconds[SIMT] / seconds[MMA] >= least
    assert 0.8 * arch.peak("float64") <= 2 * 4096**3 / seconds[MMA] <= arch.peak("float64")
    codes = {program["instruction"] for program in MMA.starters(problem, arch)}
    assert codes == ({8} if arch.name == "sm_80" else {7})


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("arch", ["sm_87", "sm_90"])
def test_eps_of_a_norm_keeps_the_digits_of_a_double(norm, arch):
    """Rows whose variance eps exceeds by far: 0.1 as a float32 is off by 1.5e-8 of itself."""
    rng = np.random.default_rng(4)
    a, b = 1e-3 * rng.standard_normal((9, 16)), rng.standard_normal((16, 24))
    with gensor_kernels.emulated(arch):
        found = gensor_kernels.matmul(a, b, epilogue=[(norm, 0.1)])
        why = gensor_kernels.explain(gensor_kernels.matmul, a, b, epilogue=[(norm, 0.1)])
    assert why.family.startswith("contraction")
    rows = a @ b
    rows -= rows.mean(axis=1, keepdims=True) if norm == "layernorm" else 0
    np.testing.assert_allclose(found, rows / np.sqrt((rows * rows).mean(axis=1, keepdims=True) + 0.1), rtol=1e-12)
