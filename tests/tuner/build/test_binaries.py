"""Facts about candidates' binaries."""

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import Binary, compile_cubin
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_tuner.build.binaries import LEFT_OUT, Binaries
from gensor_tuner.build.pool import Pool
from gensor_tuner.tasks.local import Local
from tests.build.disassembled import DOUBLES, HOPPER, USUAL, miscompiled

ARCH = lookup("sm_87")


def test_candidates_that_share_a_refused_binary_are_dead_too(monkeypatch):
    asked = []

    def compile_cubin(source, target):
        asked.append(source)
        bad = "#define STAGES 3\n" in source
        return Binary(target, b"", error="too few registers\nat line 7" if bad else "as well")

    monkeypatch.setattr("gensor_tuner.build.binaries.compile_cubin", compile_cubin)
    workload = matmul.workload(2048, 2048, 512, dtype="float16")
    space, family = Space(workload, ARCH), FAMILIES["contraction_mma"]
    first = family.starters(workload, ARCH)[0].replace(raster=1)
    others = [first.replace(raster=2), first.replace(stages=4)]  # the raster is an argument at run time
    pool, made = Pool([workload]), Binaries(ARCH, Local(1), lambda *_: None)
    pool.add(space, [first, *others], siblings=False)
    by_program = {each.program: column for column, each in enumerate(pool.candidates)}
    assert np.isfinite(pool.seconds([space])).all()
    assert made.compile(pool, [by_program[first]], [space]) == 3  # one binary, two candidates without
    assert len(asked) == 1 and set(pool.dead.values()) == {"not compiled: too few registers"}
    assert np.isfinite(pool.seconds([space])[0]).nonzero()[0].tolist() == [by_program[others[1]]]
    # One that comes later with the same constants is news as well: the cover is to be chosen again.
    pool.add(space, [first.replace(raster=4)], siblings=False)
    column = next(column for column, each in enumerate(pool.candidates) if each.program == first.replace(raster=4))
    assert made.compile(pool, [column], [space]) == 1 and len(asked) == 1
    assert made.compile(pool, [column], [space]) == 0


@pytest.mark.parametrize("stored", [False, True])
def test_a_candidate_is_dead_if_ptxas_has_left_out_a_wait(stored):
    wrong, space, pool = miscompiled(), Space(DOUBLES, HOPPER), Pool([DOUBLES])
    pool.add(space, [wrong, USUAL], siblings=False)
    made = Binaries(HOPPER, Local(1), lambda *_: None)
    if stored:
        held = [made.hold(pool, each, compile_cubin(each.source(), HOPPER.target), [space]) for each in pool.candidates]
        assert held == [each.program == USUAL for each in pool.candidates]
    else:
        assert made.compile(pool, [0, 1], [space]) == 3
    (dead,) = (each for each in pool.candidates if each.program == wrong)
    assert pool.dead == {dead.name: f"not compiled: {LEFT_OUT}"} and [*made.facts] == [USUAL]
    assert made[dead].error == LEFT_OUT and made[dead].cubin == b""
