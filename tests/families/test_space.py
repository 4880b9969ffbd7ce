"""Lattices of the kernel families: their sizes, reachability, what is refused; test_contract.py has the rest."""

import numpy as np
import pytest

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.space import FamilySpace, Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.attention import attention
from gensor_kernels.operators.products.matmul import workload
from gensor_tuner.search.graph import Graph

from . import workloads
from .lattices import MMA, SIMT, random_legal, space
from .workloads import contract


def test_points_off_the_lattice_are_illegal():
    lattice = space(0)
    points = np.repeat(random_legal(lattice, 1), 3, axis=0)
    points[1, 4], points[2, 6] = -1, lattice.extents[6]
    assert lattice.legal(points).tolist() == [True, False, False]
    partial = points[:1].copy()
    partial[0, 0], partial[0, 11] = 0, 1
    assert not lattice.legal(partial)[0], "a coordinate above the reached level must be at index 0"


# Lattices small enough to enumerate, with sizes that do and do not divide each other.
SMALL = [
    (
        *(MMA, "sm_80", workload(112, 208, 320)),
        dict(block_m={16, 32, 48, 96, 128}, block_n={16, 64, 128, 256}, block_k={16, 64}, split_k={1, 2}, raster={1})
        | dict(stages={2, 4}, vector_a={16}, vector_b={4, 16}, swizzle={1}, warp_m={16, 32, 48, 128})
        | dict(warp_n={8, 16, 64}, instruction={0}, epilogue_fixed={0}, vector_c={16}, min_blocks={0, 2})
        | dict(stream={0, 108}),
    ),
    (
        *(MMA, "sm_75", workload(112, 208, 320, dtype="int8", trans_a=True)),
        dict(block_m={16, 32, 64, 128}, block_n={16, 48, 128}, split_k={1, 2}, raster={1}, vector_a={1, 4})
        | dict(vector_b={4}, vector_c={4, 16}, warp_m={16, 32, 64}, warp_n={8, 16, 24, 48}, epilogue_fixed={0})
        | dict(min_blocks={0, 3}, stream={0}),
    ),
    (
        *(SIMT, "sm_89", workload(112, 208, 320, dtype="float32")),
        dict(block_m={1, 16, 32, 96}, block_n={4, 16, 64, 96, 128}, block_k={4, 32}, split_k={1}, raster={1})
        | dict(stages={2}, vector_a={4, 16}, vector_b={16}, pad={0}, thread_m={1, 2, 4, 12}, thread_n={1, 4, 6, 16})
        | dict(vthread_m={1, 2}, vthread_n={1, 4}, epilogue_staged={0}, epilogue_fixed={0}, vector_c={16})
        | dict(min_blocks={0}, stream={0}),
    ),
]


GEMV = {
    "threads_k": (1, 8, 32, 64), "threads_l": (1, 4, 32), "small": (1, 2, 16), "split_k": (1, 3), "items": (1, 4),
    "rows": (1, 4), "min_blocks": (0, 2),
}  # fmt: skip
ROWS = {"threads_k": (1, 8, 32, 128), "threads_m": (1, 4, 32), "split_k": (1, 2, 8), "min_blocks": (0, 2)}
ENUMERATED = [
    *SMALL,
    *((FAMILIES["gemv"], *contract("gemv").served[index], GEMV) for index in (0, 5)),
    (FAMILIES["gemv"], *contract("gemv").served[8], GEMV | {"rows": (1,)}),
    *((FAMILIES["rows"], *contract("rows").served[index], ROWS) for index in (0, 3, 11, 13)),
]


@pytest.mark.parametrize("case", range(len(ENUMERATED)))
def test_reachability_equals_enumeration(case):
    family, arch, problem, restrict = ENUMERATED[case]
    graph = Graph(FamilySpace(family, problem, lookup(arch), restrict=restrict))
    codes = []
    for begin in range(0, graph.size, 1 << 17):
        points = graph.decode(np.arange(begin, min(begin + (1 << 17), graph.size)))
        codes.append(graph.encode(points[graph.space.legal(points)]))
    legal = np.sort(np.concatenate(codes))
    assert legal.size > 100
    assert np.array_equal(graph.reachable(graph.decode(legal[-1:])), legal)
    complete = np.concatenate(list(graph.space.enumerate(chunk=10_000)))
    assert (np.sort(graph.encode(complete)) == legal[graph.decode(legal)[:, 0] == 2]).all()


def test_restricting_a_lattice_to_nothing_is_an_error():
    family, arch, problem, _ = SMALL[0]
    with pytest.raises(ValueError, match="block_m"):
        FamilySpace(family, problem, lookup(arch), restrict={"block_m": {7}})


def test_no_family_is_an_error_with_the_reason_of_the_nearest(monkeypatch):
    """Attention has one family that is for it, products several: the first in the registry speaks."""
    single = attention.workload(4, dtype="float32")
    with pytest.raises(UnsupportedError) as refused:
        Space(single, lookup("sm_86"))
    assert refused.value.reason == FAMILIES["attention"].serves(single, lookup("sm_86"))
    assert refused.value.reason.startswith("attention takes float16 or bfloat16, got float32: cast q, k and v, or")
    monkeypatch.setattr(type(SIMT), "serves", lambda self, problem, arch: "not today")
    product = workload(17, 17, 8, dtype="float64")
    for arch in ("sm_86", "sm_90"):
        monkeypatch.setattr(type(MMA), "serves", lambda self, problem, arch: "no tensor cores today")
        with pytest.raises(UnsupportedError, match=r"^no tensor cores today$"):
            Space(product, lookup(arch))


def test_a_program_of_another_lattice_is_refused():
    lattice = space(0)
    program = lattice.program(random_legal(lattice, 1)[0])
    with pytest.raises(ValueError, match="block_m=8"):
        lattice.point(program.replace(block_m=8))
    with pytest.raises(ValueError, match="contraction_simt"):
        other = workloads.space("contraction_simt", 0)
        lattice.point(other.program(random_legal(other, 1)[0]))
    with pytest.raises(ValueError, match="integers"):
        program_from_json('{"family":"contraction_mma","block_m":1}')
    with pytest.raises(KeyError):
        program.replace(no_such=1)
