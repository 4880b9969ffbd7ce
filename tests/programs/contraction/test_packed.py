"""The packed family beside its contract (test_contract.py): what is packed, and where that pays."""

from dataclasses import replace

import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.windows import conv
from gensor_kernels.operators.windows.conv_packed import packed, padded_channels
from gensor_kernels.programs.contraction.problem import extents
from gensor_kernels.programs.contraction.rewrite import pack
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from gensor_tuner.build.pool import candidate
from gensor_tuner.strategies.request import Request, search
from tests.programs.workloads import contract
from tests.programs.workloads.contraction_packed import convolution, packed_configurations
from tests.programs.workloads.window import padded

PACKED = FAMILIES["contraction_packed"]
SERVED = contract(PACKED.name).served


def test_blocks_share_the_steps_of_a_packed_product():
    """Behind the packed operands lie a flag and the sums of a tile per block; nothing spills."""
    [each] = [each for each in packed_configurations() if each.name == "packed stream"]
    verdict = each.verify(str)
    assert verdict.outcome == "ok" and verdict.branches["stream_join"] and verdict.branches["packed_filters"]
    program, blocks = each.candidate.program, each.candidate.program["stream"]
    size, zeroed = PACKED.workspace(program, each.workload)
    assert (size, zeroed) == (pack.workspace(each.workload) + blocks * (16 + 32 * 32 * 4), False)
    assert pack.workspace(each.workload) % 16 == 0
    arch, workload = lookup("sm_87"), SERVED[0][1]
    program = PACKED.starters(workload, arch)[1].replace(stream=arch.sms, min_blocks=1, split_k=1)
    assert compile_cubin(candidate(PACKED, program, workload).source(), arch.target).spill_bytes == 0


def test_channels_are_padded_to_whole_accesses():
    assert [padded_channels(c, 2) for c in (0, 1, 2, 3, 4, 5, 8, 9, 64)] == [0, 2, 2, 4, 4, 8, 8, 16, 64]
    assert [padded_channels(c, 1) for c in (0, 1, 4, 5, 8, 9, 16, 17)] == [0, 4, 4, 8, 8, 16, 16, 32]
    assert [padded_channels(c, 4) for c in (0, 1, 2, 3, 4, 5)] == [0, 1, 2, 4, 4, 8]


def test_what_is_packed():
    """The first launch's blocks and bytes, and the product that is left."""
    first = SERVED[1][1]  # 2 x 32 x 32 x 3 by 7 x 7, in accesses of 4 channels
    assert pack.packing(first) == (2, 1024, 1, 64 * 49, 8, 6, 2, 2 * 32 * 32 * 3 * 2, False)
    assert pack.workspace(first) == (2 * 1024 + 64 * 49) * 8
    assert pack.grid(first, 8, 4) == 2 * 1 + 7
    e = extents(packed(first))
    assert (e.m, e.n, e.k, e.align["a"], e.window) == (2 * 16 * 16, 64, 49 * 4, 8, "a")
    grouped = extents(packed(SERVED[2][1]))  # 20 channels of int8 in each of two groups
    assert (grouped.batch, grouped.m, grouped.k, grouped.window) == (4, 24, 9 * 32, "b")


def test_an_axis_of_one_tap_keeps_what_outputs_read():
    strided = SERVED[5][1]
    z = packed(strided).size
    assert (z["h"], z["w"], z["stride_h"], z["stride_w"]) == (7, 7, 1, 1)
    own = pack.packing(strided)
    assert own.pixels == 49
    assert own.fetched == 2 * 128 * 7 * 14 * 2  # every other row, with the columns between those that outputs read
    # Its filters stay where they are, but kernels of a less aligned class serve it too, and pack them.
    unaligned = replace(strided, alignment=tuple((name, min(width, 2)) for name, width in strided.alignment))
    assert own.stay and not pack.packing(unaligned).stay
    assert pack.workspace(strided) == pack.workspace(unaligned) == (2 * 49 + 64) * 256
    assert pack.grid(strided, 16, 16) == pack.grid(unaligned, 16, 16)
    assert pack.cost(strided, lookup("sm_87"))[0] < pack.cost(unaligned, lookup("sm_87"))[0]
    both = packed(convolution(14, 12, 16, dtype="float16", stride_h=2)).size
    assert (both["h"], both["stride_h"]) == (14, 2)


def test_few_channels_have_narrow_accesses():
    few, arch = SERVED[1][1], lookup("sm_90")
    lattice = Space(few, arch).family("contraction_packed")
    program = PACKED.starters(few, arch)[0]
    assert program["vector_a"] == 8 and PACKED.widest(program, few)["vector_b"] == 8
    with pytest.raises(ValueError, match="vector_a=16"):
        lattice.point(program.replace(vector_a=16))
    names = [case.name for case in PACKED.cases(program, few, ())]
    assert {"few channels", "one tap along h", "one tap along hw"} <= set(names)


def test_it_says_why_it_does_not_serve():
    arch = lookup("sm_87")
    assert "no convolution" in str(PACKED.serves(matmul(8, 8, 8), arch))
    assert "where they are" in str(PACKED.serves(convolution(14, 64, 64, dtype="float16"), arch))
    assert "no tensor-core" in str(PACKED.serves(convolution(14, 3, 64, dtype="float32"), arch))
    huge = convolution(1, 2048, 2**20, layout="nchw", dtype="int8", **padded())
    assert "32 bits" in str(PACKED.serves(huge, arch))
    names = {each.family.name for each in Space(SERVED[0][1], arch).families}
    assert names == {"contraction_mma", "contraction_packed", "contraction_patch", "contraction_simt"}


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_walk_packs_what_is_read_often(layout):
    """By the potential: nine taps and many filters are worth a pass over the image where filters cannot be copied."""
    kind = {"dtype": "float16", "c": 127} if layout == "nchw" else {"dtype": "float16", "c": 3}
    workload = conv.workload(n=8, h=56, w=56, k_out=128, r=3, s=3, layout=layout, **kind, **padded())
    found = search(Request(workload, lookup("sm_87"), 0, "full"))
    assert found.best[0][0].family == "contraction_packed"
