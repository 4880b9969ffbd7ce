"""The strip family in addition to its contract (test_contract.py): its cases, bank conflicts, strides."""

import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.programs.contraction.strip import shape as shapes
from gensor_kernels.programs.registry import FAMILIES
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.verify import verify
from tests.programs.lattices import random_legal
from tests.programs.workloads import contract, space

STRIP = FAMILIES["contraction_strip"]
SERVED = contract(STRIP.name).served


@pytest.mark.parametrize("index", range(len(SERVED)))
def test_cases_have_the_lines_and_octets_of_their_program(index):
    lattice = space(STRIP.name, index)
    for point in random_legal(lattice, 20, seed=3):
        program = lattice.program(point)
        for case in STRIP.cases(program, lattice.workload, ()):
            assert STRIP.serves(case.workload, lattice.arch) is None, f"{case.name} of {program.to_json()}"
            call = shapes.call_of(case.workload)
            own = {"lines": call.lines, "octets": call.octets, "planes": call.planes}
            assert own == {name: program[name] for name in own}, f"{case.name} of {program.to_json()}"


def test_fragments_are_read_without_bank_conflicts():
    """Outputs 6 and 2 elements apart, and whole stores of them: docs of the kernel say so."""
    for index in (0, 2):
        arch, workload = SERVED[index]
        verdict = verify(candidate(STRIP, STRIP.starters(workload, lookup(arch))[0], workload), workload)
        assert verdict.counters["bank_conflicts"] == 0


def test_what_is_read_is_asked_of_strides():
    for _, workload in SERVED:
        image, *rest = operator("conv2d").operands(workload)
        strides = {each.name: each.strides() for each in (image, *rest)}
        geometry = operator("conv2d").geometry(workload, strides)
        assert STRIP.reads(workload, geometry)
        apart = tuple(2 * stride for stride in strides["x"])
        assert not STRIP.reads(workload, operator("conv2d").geometry(workload, strides | {"x": apart}))
        above = (*strides["x"][:1], strides["x"][1] + 3, *strides["x"][2:])
        assert STRIP.reads(workload, operator("conv2d").geometry(workload, strides | {"x": above}))
