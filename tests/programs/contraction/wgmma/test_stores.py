"""contraction_wgmma whose results leave by tensor copies: maps of C, and results that copies cannot store."""

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.tensor_maps import TensorMap, call_key, description, key
from gensor_kernels.programs.space import FamilySpace
from tests.programs.lattices import WGMMA

C_MAP = TensorMap("c", False, 2, 16)


def pack(address=1 << 22, row=1024):
    c = Strides((64 * row, 0, 0), row, 1)
    geometry = Geometry((100, 1000, 64), (3, 1, 1), Strides((0, 0, 0), 64, 1), Strides((0, 0, 0), 1, 64), c)
    tiling = params.tiling({"m": 64, "n": 64, "k": 64, "split": 1, "raster": 1}, geometry)
    return params.pack(geometry, tiling, steps=[], pointers=(1 << 20, 1 << 21, address, 0))


def test_a_map_of_c_is_that_of_its_call():
    found = description(pack(), C_MAP)
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
