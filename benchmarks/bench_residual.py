"""Speed of the potential with a learned residual on one core: Programs of a walk, and kernels of a library.

    pytest benchmarks/bench_residual.py --benchmark-columns=min,median

The residual has full size: shared trees, and trees of the part. Its training data do not matter for its speed.
"""

import itertools

import numpy as np
import pytest

from gensor_kernels.dispatch.selection import library, predict
from gensor_kernels.machine.residual import FEATURES, Learnt, features
from gensor_kernels.programs.core.program_batch import Roster
from gensor_tuner.learn.fit import Measured, fit

from .bench_roofline import CASES, distinct, lattice, timed

KERNELS = 200


def taught(space):
    """Return a residual trained on thousands of Programs of a space."""
    pytest.importorskip("lightgbm")
    x = features(space.terms(distinct(space, 4_000)), space.arch)
    place = (space.arch.part, space.workload.kind, space.workload.operator)
    sample = Measured(*place, x, np.sin(5 * x[3]) + 0.1 * x[5], space.arch.name, space.arch.sms)
    return fit([sample], FEATURES)


@pytest.mark.parametrize("batch", (1_000, 4_000))
@pytest.mark.parametrize("case", ("mma", "simt"))
def test_potential_with_residual(benchmark, case, batch):
    space = lattice(case)
    points = distinct(space, batch)
    space.learnt = Learnt(taught(space))
    timed(benchmark, space.potential, points)


@pytest.mark.parametrize("case", ("mma", "simt"))
@pytest.mark.parametrize("what", ("potential", "both", "residual"))
def test_kernels_of_a_library(benchmark, case, what):
    """Prediction for an unseen shape among 200 stored kernels of its class; "residual" is the residual's share."""
    space = lattice(case)
    programs = [space.program(point) for point in distinct(space, KERNELS)]
    kernels = [library.generate(program, CASES[case][2], space.arch) for program in programs]
    held = library.Library(library.Contents(residual=taught(space) if what != "potential" else None))
    places, terms = Roster(space.family, programs).terms(CASES[case][2], space.arch)
    assert len(places) == KERNELS

    rows = itertools.count(16, 16)

    def unseen():
        return (CASES[case][2].with_sizes(m=next(rows)),), {}

    def run(wanted):
        if what == "residual":
            return held.learnt.model.correction(
                features(terms, space.arch), space.arch.part, wanted.kind, wanted.operator
            )
        return predict.predict(kernels, wanted, space.arch, held)

    benchmark.pedantic(run, setup=unseen, rounds=200, warmup_rounds=20)
