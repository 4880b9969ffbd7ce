"""Gated products by contraction_wgmma: both matrices' columns in one product, the gate in registers."""

from gensor_kernels.operators.products import gated
from gensor_kernels.programs.space import FamilySpace
from tests.programs.lattices import WGMMA, random_legal
from tests.programs.warpgroups import ARCH


def test_what_is_legal_fits_and_agrees_with_the_terms():
    workload = gated.workload("swiglu", 500, 1376, 1024, dtype="bfloat16", trans_b=True)
    lattice = FamilySpace(WGMMA, workload, ARCH)
    values = {c.name: c.values for c in lattice.coordinates}
    assert values["split_k"] == (1,) and values["cluster"] == (0, 2) and max(values["block_n"]) == 128
    for point in random_legal(lattice, 20, seed=1):
        program, terms = lattice.program(point), lattice.explain(point)
        (main,) = WGMMA.launches(program, workload)
        assert (main.grid, main.shared_bytes) == (terms["blocks"], terms["shared_bytes"])
        assert WGMMA.constants(program, workload)["BLOCK_N"] == 2 * program["block_n"]
        a, b, other, *_ = main.maps
        assert (a.operand, b.operand, other.operand) == ("a", "b", "b") and other.other and not b.other
        assert b.rows == other.rows == program["block_n"]
