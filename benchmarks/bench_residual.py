"""How fast the potential is with a learnt residual on top: distinct random legal Programs per second, on one core.

    pytest benchmarks/bench_residual.py --benchmark-columns=min,median

The residual is of full size: shared trees, and trees of the part.  What it was taught does not matter for its speed.
"""

import numpy as np
import pytest

from gensor_kernels.machine import roofline
from gensor_kernels.machine.residual import FEATURES, features
from gensor_tuner.residual import Measured, fit

from .bench_roofline import distinct, lattice, timed


@pytest.mark.parametrize("batch", (1_000, 4_000))
@pytest.mark.parametrize("case", ("mma", "simt"))
def test_potential_with_residual(benchmark, case, batch):
    pytest.importorskip("lightgbm")
    space = lattice(case)
    points, part = distinct(space, batch), space.arch.part
    x = features(space.terms(points), space.arch)
    model = fit([Measured(part, "float32", "matmul", x, np.sin(5 * x[3]) + 0.1 * x[5])], FEATURES)

    def predict(points):
        terms = space.terms(points)
        mean, _ = model.predict(features(terms, space.arch), part, "float32", "matmul")
        return roofline.seconds(terms, space.arch) * np.exp(mean)

    timed(benchmark, predict, points)
