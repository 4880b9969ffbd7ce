"""The figures of benchmarks.rows, for rows with given Programs."""

import math
from argparse import Namespace

import pytest

from benchmarks import rows
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.products import matmul
from gensor_kernels.programs.space import Space
from gensor_tuner.run.result import Result
from gensor_tuner.shapes.reader import Row

ARCH = lookup("sm_87")


def tune(m, n, k, choose=min, **options):
    """Return a row served by the best (or the worst) starter."""
    workload = matmul.workload(m, n, k, **options)
    found = []
    for space in Space(workload, ARCH).families:
        for program in space.family.starters(workload, ARCH):
            found.append((float(space.potential(space.point(program)[None])[0]), program))
    seconds, program = choose(found, key=lambda pair: pair[0])
    result = Result(
        workload,
        "ok",
        f"{program.to_json()}",
        program.family,
        dict(program.values),
        seconds * 1e6,
        bound_us(workload, ARCH),
        seconds={"walk": 1.0, "compile": 2.0},
    )
    return rows.Tuned(Row(1, f"{m}x{n}x{k}", 1, workload), result)


@pytest.fixture(scope="module")
def served():
    return [tune(1024, 1024, 1024), tune(16, 4096, 4096, max), tune(4096, 16, 1024)]


def test_rows_above_twice_their_bound_are_listed_with_what_they_wait_for(served):
    found = rows.bound_figures(ARCH, served, {})
    ratios = sorted(rows.ratio(each.result) for each in served)
    assert found["of"] == 3 and found["worst"] == ratios[-1] and found["within"] == sum(r <= 2 for r in ratios)
    assert [each["ratio"] for each in found["far"]] == sorted((each["ratio"] for each in found["far"]), reverse=True)
    assert found["far"] and all(each["limits"] for each in found["far"])


def test_the_limiting_term_is_the_one_that_would_save_most():
    row = tune(4096, 4096, 4096, dtype="float32")
    space = Space(row.result.workload, ARCH).family(row.result.family)
    terms = space.explain(space.point(rows.program_of(row.result)))
    slow = rows.limits({**terms, "wavefronts": terms["wavefronts"] * 100}, ARCH)
    assert next(iter(slow)) == "wavefronts" and slow["wavefronts"] > 0.9
    assert "wavefronts" not in rows.limits({**terms, "math": terms["math"] * 100}, ARCH)


def test_regret_of_a_single_kernel(served):
    found = rows.class_figures(ARCH, served, ())
    assert found["rows"] == 3 and found["kernels"] == len({each.result.kernel for each in served})
    assert 1 <= found["single_kernel_regret_median"] <= found["single_kernel_regret_worst"] < math.inf
    alone = rows.class_figures(ARCH, served[:1], ())
    assert alone["single_kernel_regret_worst"] == 1


def test_cost_counts_shared_results_once(served):
    found = rows.cost([*served, served[0]], 10.0, 4, Namespace(jobs=2, verify="none", warm=True))
    assert found["stage_seconds"] == {"compile": 6.0, "walk": 3.0} and found["seconds_per_compilation"] == 1.5
    assert found["peak_mb_at_most"] >= found["peak_mb_self"] > 10
