"""contraction_wgmma whose results leave by tensor copies: right in every order of events, wherever c lies."""

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.build.resources import disassemble
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import matmul
from gensor_kernels.operators.geometry import Geometry, Strides
from gensor_kernels.programs import params
from gensor_kernels.programs.space import FamilySpace
from gensor_kernels.programs.tensor_maps import TensorMap, described, key

from .contraction_harness import Case, Problem, wgmma
from .lattices import WGMMA

COPIES = {"EPILOGUE_STAGED": 0, "STORE_COPIES": 1}
C_MAP = TensorMap("c", False, 2, 16)
# Boxes that are partial, one and three to a row; several rows of them; batches; an operand of the epilogue.
KERNELS = {
    "a block per tile": (wgmma(EPILOGUE_CODES=2, **COPIES), Case(70, 72, 328, epilogue=("bias",))),
    "pairs, two rows": (
        wgmma("bfloat16", BLOCK_M=128, CLUSTER=2, PERSISTENT=1, EPILOGUE_CODES=31, **COPIES),
        Case(136, 200, 200, batch=(2, 1, 2)),
    ),
    "in turns": (
        wgmma(BLOCK_N=192, CONSUMERS=2, PERSISTENT=2, STAGES=2, EPILOGUE_CODES=31, **COPIES),
        Case(136, 200, 328, batch=(1, 2, 1)),
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_matches_float64(name):
    kernel, case = KERNELS[name]
    problem = Problem(kernel, case)
    for order, copies in (("forward", "late"), ("reverse", "early"), (5, "late")):
        counters = problem.run(order=order, copies=copies)
        verdict = problem.check()
        assert verdict.ok, verdict.message
        assert counters.bank_conflicts == 0 and counters["tensor_stores"]
        assert set(counters.global_widths("global_store")) == {16}


def pack(address=1 << 22, row=1024):
    c = Strides((64 * row, 0, 0), row, 1)
    geometry = Geometry((100, 1000, 64), (3, 1, 1), Strides((0, 0, 0), 64, 1), Strides((0, 0, 0), 1, 64), c)
    tiling = params.tiling({"m": 64, "n": 64, "k": 64, "split": 1, "raster": 1}, geometry)
    return params.pack(geometry, tiling, steps=[], pointers=(1 << 20, 1 << 21, address, 0))


def test_a_map_of_c_is_that_of_its_call():
    found = described(pack(), C_MAP)
    assert (found.address, found.extents, found.box) == (1 << 22, (1000, 100, 1, 1, 3), (64, 16))
    assert found.strides == (2048, 16, 16, 64 * 2048)
    first, moved, wider = pack(), pack(1 << 23), pack(row=2048)
    assert key(first, False) == key(moved, False) and key(first, False, True) != key(moved, False, True)
    assert key(first, False, True) != key(wider, False, True)


def test_a_result_that_copies_cannot_store_goes_elsewhere():
    wide, back = Strides((0, 0, 0), 1024, 1), Strides((0, 0, 0), -1024, 1)
    for out, row, served in (("float16", wide, True), ("float16", back, False), ("float32", back, True)):
        workload = matmul.workload(128, 1024, 64, dtype="float16", out=out, trans_b=True)
        a, b = Strides((0, 0, 0), 64, 1), Strides((0, 0, 0), 1, 64)
        assert WGMMA.reads(workload, Geometry((128, 1024, 64), (1, 1, 1), a, b, row)) == served
        space = FamilySpace(WGMMA, workload, lookup("sm_90"))
        ways = next(c.values for c in space.coordinates if c.name == "epilogue_staged")
        assert (3 in ways) == (out == "float16")


def test_copies_are_legal_for_whole_boxes_that_are_not_split():
    workload = matmul.workload(512, 512, 512, trans_b=True)
    space = FamilySpace(WGMMA, workload, lookup("sm_90"))
    program = WGMMA.starters(workload, space.arch)[0].replace(
        block_m=64, block_n=128, consumers=1, stages=2, epilogue_staged=3, vector_c=16, split_k=1
    )
    for values, legal in (({}, True), ({"block_n": 80}, False), ({"split_k": 2}, False), ({"vector_c": 8}, False)):
        assert space.legal(space.point(program.replace(**values))[None])[0] == legal
    staged, copied = (space.point(program.replace(epilogue_staged=way)) for way in (1, 3))
    assert space.explain(copied)["epilogue_busy"] < space.explain(staged)["epilogue_busy"]
    assert np.isfinite(space.potential(copied[None])[0])


def test_stores_by_copies_in_sass():
    kernel = wgmma(BLOCK_M=128, BLOCK_N=256, CONSUMERS=2, STAGES=3, PERSISTENT=1, CLUSTER=1, **COPIES)
    (binary,) = compile_many([(kernel.source(), "sm_90a")])
    assert binary.error is None and binary.spill_bytes == binary.stack_bytes == 0, binary.log
    assert "Potential Performance Loss" not in binary.log and "setmaxnreg" not in binary.log, binary.log
    sass = disassemble(binary.cubin, binary.target)
    if sass is None:
        pytest.skip("nvdisasm is not installed")
    entry = sass["contraction_wgmma"]
    assert entry.opcodes["UTMASTG"] == 1 and entry.opcodes["STS"] == 8 and "STG" not in entry.opcodes
    assert sum(entry.hot_loop.values()) <= 17 * 4, entry.hot_loop
