"""Operands that are widened as they are read: right on the emulator by either route, without spills or conflicts."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space

ml_dtypes = pytest.importorskip("ml_dtypes")

MMA = "contraction_mma"


def workload(a, b, along_a, along_b, **more):
    return matmul.workload(256, 512, 4096, dtype=a, dtype_b=b, trans_a=not along_a, trans_b=along_b, **more)


def test_eight_bit_floats_need_the_instruction_and_copies_as_they_are():
    along, across = (workload(*EIGHT_BIT_FLOATS, True, along_b, out="float16") for along_b in (True, False))

    def codes_of(wanted, name):
        found = FAMILIES[MMA].coordinates(wanted, lookup(name))
        return next(each.values for each in found if each.name == "instruction")

    codes = {
        (name, each.layouts["b"]): codes_of(each, name)
        for name in ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
        for each in (along, across)
    }
    assert {where for where, found in codes.items() if 9 in found} == {("sm_89", "k"), ("sm_120", "k")}
    space = Space(along, lookup("sm_89")).family(MMA)
    program = space.family.starters(along, lookup("sm_89"))[0]
    registers = program.replace(copy=0, stages=2)
    assert space.legal(space.point(program)[None])[0] and not space.legal(space.point(registers)[None])[0]


@pytest.mark.parametrize("along_k", [True, False], ids=["fragments", "shared"])
@pytest.mark.parametrize("name", [*EIGHT_BIT_FLOATS, "int8"])
def test_every_byte_at_every_place_is_widened_exactly(name, along_k):
    stored = np.arange(256, dtype=np.uint8)
    values = (stored.view(np.int8) if name == "int8" else stored.view(getattr(ml_dtypes, name))).astype(np.float64)
    one_hot = np.eye(64, dtype=np.float16)
    b = np.repeat(stored[None] if name != "int8" else stored.view(np.int8)[None], 64, axis=0)
    b = np.ascontiguousarray(b.T).T if along_k else b
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.matmul(one_hot, b, dtype_b=name, dtype=np.float32)
        why = gensor_kernels.explain(gensor_kernels.matmul, one_hot, b, dtype_b=name, dtype=np.float32)
    assert why.family == MMA and why.program["copy"] == int(along_k)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(found[:, finite], np.broadcast_to(values[finite], (64, finite.sum())))
    # infinity times 0 is NaN, but for the row that has a 1 alone there is only NaN
    assert np.isnan(found[:, ~finite]).all()
