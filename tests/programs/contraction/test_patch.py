"""The patch family in addition to its contract (test_contract.py): shapes of patches, streams, taps that are compiled
in."""

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.machine.arch import lookup
from gensor_kernels.programs.contraction.patch import shape as shapes
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from tests.programs.workloads import contract, space
from tests.programs.workloads.contraction_packed import convolution
from tests.programs.workloads.contraction_patch import FIRST, patch_configurations
from tests.programs.workloads.window import padded

PATCH = FAMILIES["contraction_patch"]
SERVED = contract(PATCH.name).served


def test_blocks_share_the_channels_of_all_tiles():
    """Steps have all taps; stream_k.cuh passes on the rest. Nothing spills."""
    [each] = [each for each in patch_configurations() if each.name == "patch stream"]
    verdict = each.verify(str)
    assert verdict.outcome == "ok" and verdict.branches["stream_join"] and verdict.branches["whole_tile"]
    arch, workload = SERVED[0][0], SERVED[0][1]
    program = PATCH.starters(workload, lookup(arch))[0].replace(stream=8, min_blocks=1, split_k=1)
    binary = compile_cubin(candidate(PATCH, program, workload).source(), lookup(arch).target)
    assert binary.error is None and binary.spill_bytes == 0
    lattice = space(PATCH.name, 0)
    terms = lattice.explain(lattice.point(program))
    assert terms["blocks"] == 8 and terms["iterations"] % 9 == 0


def test_merged_groups_share_a_step():
    many = {**FIRST, "dtype": "float16", "groups": 32}
    assert shapes.merges(convolution(14, 128, 128, **many)) == (0, 2, 4, 8, 16)
    assert shapes.merges(convolution(14, 512, 128, **many)) == (0, 2, 4)  # 16 channels each
    assert shapes.merges(convolution(14, 96, 96, **many)) == (0,)  # words of two channels
    assert shapes.merges(convolution(14, 24, 24, **many | {"groups": 6})) == (0, 2)
    arch, workload = lookup("sm_87"), convolution(14, 128, 128, **many, **padded())
    merged, alone = (next(each for each in PATCH.starters(workload, arch) if each["merged"] == n) for n in (4, 0))
    lattice = FamilySpace(PATCH, workload, arch)
    times = lattice.potential([lattice.point(each) for each in (merged, alone)])
    assert 2 * times[0] < times[1]
    # On lattices of other sizes a Program is legal where its groups are.
    others = FamilySpace(PATCH, workload.with_sizes(groups=16, c=128), arch)
    assert list(others.legal([others.point(merged.replace(block_k=k)) for k in (16, 32)])) == [False, True]


def test_taps_may_be_compiled_in():
    arch = lookup("sm_87")
    coordinates = PATCH.coordinates(convolution(14, 64, 64, 9, **FIRST, dtype="int8"), arch)
    assert {c.name: c.values for c in coordinates}["taps"] == (0,)  # 81 would fill the registers
    program = PATCH.starters(SERVED[3][1], arch)[0]
    assert program["taps"] == 50
    assert {each.workload.size["r"] for each in PATCH.cases(program, SERVED[3][1], ())} == {5}
