"""The packed family in addition to its contract (test_contract.py): what is packed, and where that pays."""

from dataclasses import replace

import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.windows.conv_packed import pack_workload
from gensor_kernels.programs.contraction.rewrite import pack
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from gensor_tuner.build.pool import candidate
from tests.programs.workloads import contract
from tests.programs.workloads.contraction_packed import convolution, packed_configurations

PACKED = FAMILIES["contraction_packed"]
SERVED = contract(PACKED.name).served


def test_blocks_share_the_steps_of_a_packed_product():
    """The packed operands are followed by a flag and the sums of a tile per block; nothing spills."""
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


def test_an_axis_of_one_tap_keeps_what_outputs_read():
    strided = SERVED[5][1]
    z = pack_workload(strided).size
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
    both = pack_workload(convolution(14, 12, 16, dtype="float16", stride_h=2)).size
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
