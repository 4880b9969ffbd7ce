"""Seconds per walk: `pytest benchmarks/bench_walk.py --benchmark-only`.

Each case is the tuner's work for one workload: a walk, the compiler's facts about its best Programs folded in, and a
second walk from its elites; 16,000 chain-steps in all, at least 200 per chain.
"""

from __future__ import annotations

import pytest

from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.search.walk import Walk, walk

CASES = {
    "square-fp16-orin": ((4096, 4096, 4096), "float16", "sm_87"),
    "skinny-int8-h100": ((16, 4096, 11008), "int8", "sm_90"),
    "small-fp32-turing": ((128, 768, 768), "float32", "sm_75"),
    "ragged-bf16-ada": ((333, 777, 1111), "bfloat16", "sm_89"),
    "gemv-fp16-ampere": ((1, 4096, 4096), "float16", "sm_80"),
    "square-fp64-hopper": ((2048, 2048, 2048), "float64", "sm_90"),
}


def both_walks(workload, arch) -> tuple[Walk, Walk]:
    """Return the first walk of a workload and the walk after feedback."""
    space = Space(workload, arch)
    first = walk(space, chains=48, steps=200, keep=16)
    elites = [program for program, _ in first.best]
    for program in elites[:8]:
        family = space.family(program.family)
        wanted = family.explain(family.point(program))["registers"]
        family.add_feedback(program, registers=int(wanted) + 12, spill_bytes=0)
    return first, walk(space, chains=32, steps=200, start=elites, keep=16)


@pytest.mark.parametrize("case", CASES)
def test_walk_and_walk_again(benchmark, case):
    (m, n, k), dtype, arch = CASES[case]
    workload = matmul.workload(m, n, k, dtype=dtype, trans_b=True)
    first, again = benchmark.pedantic(both_walks, args=(workload, lookup(arch)), rounds=5, warmup_rounds=1)
    assert first.steps + again.steps == 16_000
    benchmark.extra_info |= {
        "evaluations": first.evaluations + again.evaluations,
        "predicted_us": round(again.best[0][1] * 1e6, 3),
    }
