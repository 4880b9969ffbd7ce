"""contraction_wgmma whose results leave by tensor copies: right in every order of events, wherever c lies."""

import json
from itertools import islice

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.tensor_maps import TensorMap, call_key, described, key
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from tests.programs.contraction.machine_code import machine_code
from tests.programs.lattices import WGMMA, random_legal
from tests.programs.workloads.contraction_harness import Case, Problem, wgmma, wgmma_launch

COPIES = {"EPILOGUE_STAGED": 0, "STORE_COPIES": 1}
C_MAP = TensorMap("c", False, 2, 16)
EIGHT = {"BLOCK_N": 128, "BLOCK_K": 128, "STAGES": 2, **COPIES}
# Boxes that are partial, one to seven to a row; several rows of them; batches; operands of the epilogue; outputs of
# every size, of which those of 32 bits change places in their batches, and those of 8 bits fill a box in four.
KERNELS = {
    "a block per tile": (wgmma(EPILOGUE_CODES=2, **COPIES), Case(70, 72, 328, epilogue=("bias",))),
    "float32": (
        wgmma("bfloat16", "float32", BLOCK_N=224, EPILOGUE_CODES=3, **COPIES),
        Case(70, 236, 200, batch=(1, 2, 1), epilogue=("add",)),
    ),
    "float32, one box to a row": (
        wgmma("float32", BLOCK_K=32, BLOCK_N=32, PERSISTENT=1, **COPIES),
        Case(136, 44, 108, epilogue=("bias", "relu")),
    ),
    "float32, three boxes": (
        wgmma("float8_e4m3fn", BLOCK_N=96, PERSISTENT=2, CONSUMERS=2, EPILOGUE_CODES=31, **COPIES),
        Case(136, 100, 336, batch=(1, 1, 2)),
    ),
    "int32": (
        wgmma("int8", "int32", EPILOGUE_CODES=31, **EIGHT | {"PERSISTENT": 1, "CLUSTER": 1}),
        Case(131, 100, 528),
    ),
    "int8": (wgmma("int8", "int8", EPILOGUE_CODES=31, **EIGHT), Case(70, 144, 528, batch=(2, 1, 1))),
    "int8, two boxes, in turns": (
        wgmma("int8", "int8", **EIGHT | {"BLOCK_N": 256, "PERSISTENT": 2, "CONSUMERS": 2}),
        Case(136, 272, 272, epilogue=("relu",)),
    ),
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
        counters = problem.right(order=order, copies=copies)
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
    of_a = TensorMap("a", False, 2, 64)
    assert key(first, of_a) == key(moved, of_a) == key(wider, of_a)
    assert len({key(each, C_MAP) for each in (first, moved, wider)}) == 3
    assert call_key(first, False, False) == call_key(moved, False, False)
    assert call_key(first, False, True) != call_key(moved, False, True)


def test_a_result_that_copies_cannot_store_goes_elsewhere():
    wide, back = Strides((0, 0, 0), 1024, 1), Strides((0, 0, 0), -1024, 1)
    cases = (("float16", 1024, wide, True), ("float16", 1024, back, False), ("float32", 1024, back, False))
    for out, n, row, served in (*cases, ("float16", 1020, back, True), ("float32", 1022, back, True)):
        workload = matmul.workload(128, n, 64, dtype="float16", out=out, trans_b=True)
        a, b = Strides((0, 0, 0), 64, 1), Strides((0, 0, 0), 1, 64)
        assert WGMMA.reads(workload, Geometry((128, n, 64), (1, 1, 1), a, b, row)) == served
        space = FamilySpace(WGMMA, workload, lookup("sm_90"))
        ways = next(c.values for c in space.coordinates if c.name == "epilogue_staged")
        assert (3 in ways) == (n == 1024)


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


@pytest.mark.parametrize(("out", "columns"), [("float16", 64), ("float32", 32), ("int32", 32), ("int8", 128)])
def test_boxes_have_rows_of_128_bytes(out, columns):
    integers = {"dtype": "int8"} if out.startswith("int") else {}
    workload = matmul.workload(512, 512, 512, out=out, trans_b=True, **integers)
    space = FamilySpace(WGMMA, workload, lookup("sm_90"))
    program = WGMMA.starters(workload, space.arch)[0].replace(
        block_m=64, consumers=1, stages=2, epilogue_staged=3, vector_c=16, split_k=1, persistent=0, cluster=0
    )
    for block_n in (16, 32, 48, 64, 96, 128, 192, 224, 256):
        legal = space.legal(space.point(program.replace(block_n=block_n))[None])[0]
        assert legal == (block_n % columns == 0), block_n
    (*_, found) = WGMMA.launches(program.replace(block_n=128), workload)[0].maps
    assert described(pack(), found).box == (columns, 16)


@pytest.mark.parametrize(
    "keywords",
    [
        {"out": "float32", "epilogue": ("bias",)},
        {"dtype": "float32", "math": "tf32"},
        {"dtype": "int8"},
        {"dtype": "int8", "out": "int8", "epilogue": ("relu",)},
    ],
    ids=lambda each: f"{each.get('dtype', 'float16')}-{each.get('out', '')}",
)
def test_random_legal_programs_compile_without_spills(keywords):
    workload = matmul.workload(512, 512, 512, trans_b=True, **keywords)
    space = FamilySpace(WGMMA, workload, lookup("sm_90"))
    points = (space.program(point) for point in random_legal(space, 4000, seed=5))
    copied = list(islice((program for program in points if program["epilogue_staged"] == 3), 6))
    made = [candidate(WGMMA, program, workload) for program in copied]
    for program, each, binary in zip(copied, made, compile_many([(c.source(), "sm_90a") for c in made]), strict=True):
        assert binary.error is None and binary.spill_bytes == binary.stack_bytes == 0, program.to_json()
        main, *rest = WGMMA.launches(program, workload)
        assert not rest and (main.block, main.shared_bytes) == wgmma_launch(json.loads(each.constants))
        assert [each.operand for each in main.maps] == ["a", "b", "c"]
    assert len(copied) == 6


@pytest.mark.parametrize(("out", "counts"), [("float16", {"STSM": 16}), ("float32", {"STS": 64, "FSEL": 128})])
def test_stores_of_boxes_in_sass(out, counts):
    """Without operations no sum is looked for: a box takes eight stores of four matrices, or stores of pairs, for
    which fragments of 32 bits change places."""
    large = {"BLOCK_M": 128, "BLOCK_N": 256, "CONSUMERS": 2, "STAGES": 3, "PERSISTENT": 1}
    kernel = wgmma("float16", out, EPILOGUE_CODES=31, **large, **COPIES)
    _, entry = machine_code(kernel, "sm_90a")
    boxes = 256 // (128 // {"float16": 2, "float32": 4}[out])
    found = {name: entry.opcodes[name] for name in ("STSM", "STS", "FSEL", "STG") if name in entry.opcodes}
    assert entry.opcodes["UTMASTG"] == boxes and found == counts


def test_stores_by_copies_in_sass():
    """A list of operations from Params has the loop of batches beside the way without operations."""
    kernel = wgmma(BLOCK_M=128, BLOCK_N=256, CONSUMERS=2, STAGES=3, PERSISTENT=1, CLUSTER=1, **COPIES)
    _, entry = machine_code(kernel, "sm_90a")
    assert entry.opcodes["UTMASTG"] == 4 + 1 and entry.opcodes["STSM"] == 16 + 2
    assert not {"STS", "STG"} & entry.opcodes.keys() and "R2UR" not in entry.hot_loop
    assert sum(entry.hot_loop.values()) <= 13 * 4, entry.hot_loop
