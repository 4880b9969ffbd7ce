"""Families of convolutions in addition to their contracts: what is packed, patches, phases and strips."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.families.contraction.patch import shape as patch_shapes
from gensor_kernels.families.contraction.rewrite import pack
from gensor_kernels.families.contraction.strip import shape as strip_shapes
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace, Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.expression.evaluate import evaluate
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from gensor_kernels.operators.windows.conv_packed import pack_workload
from gensor_kernels.operators.windows.conv_phased import all_phases, axis, least_depth, phases
from gensor_kernels.operators.windows.conv_product import _indices
from gensor_kernels.operators.windows.sides import output_size
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.verify import verify
from tests.families.lattices import random_legal
from tests.families.workloads import contract, space
from tests.families.workloads.images import (
    FIRST,
    convolution,
    packed_configurations,
    patch_configurations,
    transposed,
)
from tests.families.workloads.window import padded

# ---- declarations


SIZES = dict(n=2, h=9, w=11, c=6, k_out=4, r=3, s=2)
PARAMETERS = dict(stride_h=2, stride_w=1, pad_top=1, pad_bottom=0, pad_left=2, pad_right=1, dilation_w=2, groups=2)


def arrays_of(workload: Workload, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    *inputs, _ = operator(workload.operator).operands(workload)
    return {each.name: rng.standard_normal(each.shape) for each in inputs}


@pytest.mark.parametrize("transposed", [False, True])
def test_the_reference_is_the_declaration(transposed):
    more = dict(output_padding_h=1) if transposed else {}
    w = conv.workload(**SIZES, **PARAMETERS, **more, dtype="float64", transposed=transposed)
    declared, arrays = operator(w.operator), arrays_of(w)
    expected = declared.expect(w, arrays)
    by_declaration = evaluate(declared.stages(w.size), arrays, sizes=w.size)
    np.testing.assert_allclose(expected.values, by_declaration, rtol=1e-12, atol=1e-12)
    assert expected.values.shape == declared.operands(w)[-1].shape
    multiplied = declared.operands(w)[0] if transposed else declared.operands(w)[-1]
    others = 2 if transposed else 3  # filters of a group that a pixel meets, or channels that an output sums
    assert w.flops() == 2 * np.prod(multiplied.shape) * others * 3 * 2


def test_a_convolution_of_one_by_one_is_a_matrix_product():
    sizes = dict(n=8, h=14, w=14, c=64, k_out=32, r=1, s=1)
    last, first = conv.workload(**sizes, dtype="float16"), conv.workload(**sizes, layout="nchw", dtype="float16")
    assert (last.operator, last.size["m"], last.size["n"], last.size["k"]) == ("matmul", 8 * 196, 32, 64)
    assert (first.operator, first.size["batch"], first.size["m"], first.size["n"]) == ("matmul", 8, 32, 196)
    assert conv.workload(**sizes, stride_h=2, dtype="float16").operator == "conv2d"


# ---- operands that are packed first


PACKED = FAMILIES["contraction_packed"]
PACKED_SERVED = contract(PACKED.name).served


def test_an_axis_of_one_tap_keeps_what_outputs_read():
    strided = PACKED_SERVED[5][1]
    z = pack_workload(strided).size
    assert (z["h"], z["w"], z["stride_h"], z["stride_w"]) == (7, 7, 1, 1)
    own = pack.packing(strided)
    assert own.pixels == 49
    assert own.fetched == 2 * 128 * 7 * 14 * 2  # every other row, with the columns between those that outputs read
    # Its filters stay where they are, but kernels of a less aligned class serve it too, and pack them.
    unaligned = replace(strided, alignment=tuple((name, min(width, 2)) for name, width in strided.alignment))
    assert own.stay and not pack.packing(unaligned).stay
    assert pack.workspace(strided) == pack.workspace(unaligned) == (2 * 49 + 64) * 256
    assert pack.first_launch(strided, 16, 16) == pack.first_launch(unaligned, 16, 16)
    assert pack.cost(strided, lookup("sm_87"))[0] < pack.cost(unaligned, lookup("sm_87"))[0]
    both = pack_workload(convolution(14, 12, 16, dtype="float16", stride_h=2)).size
    assert (both["h"], both["stride_h"]) == (14, 2)


def test_few_channels_have_narrow_accesses():
    few, arch = PACKED_SERVED[1][1], lookup("sm_90")
    lattice = Space(few, arch).family("contraction_packed")
    program = PACKED.starters(few, arch)[0]
    assert program["vector_a"] == 8 and PACKED.widest(program, few)["vector_b"] == 8
    with pytest.raises(ValueError, match="vector_a=16"):
        lattice.point(program.replace(vector_a=16))
    names = [case.name for case in PACKED.cases(program, few, ())]
    assert {"few channels", "one tap along h", "one tap along hw"} <= set(names)


# ---- patches


PATCH = FAMILIES["contraction_patch"]
PATCH_SERVED = contract(PATCH.name).served


@pytest.mark.parametrize(
    ("family", "configurations", "branch", "starter"),
    [(PACKED, packed_configurations, "packed_filters", 1), (PATCH, patch_configurations, "whole_tile", 0)],
)
def test_blocks_share_the_steps_of_a_product(family, configurations, branch, starter):
    """By stream_k.cuh, and nothing spills."""
    [each] = [each for each in configurations() if each.name.endswith(" stream")]
    verdict = each.verify(str)
    assert verdict.outcome == "ok" and verdict.branches["stream_join"] and verdict.branches[branch]
    part, workload = contract(family.name).served[0]
    arch = lookup(part)
    program = family.starters(workload, arch)[starter].replace(stream=8, min_blocks=1, split_k=1)
    assert compile_cubin(candidate(family, program, workload).source(), arch.target).spill_bytes == 0


def test_merged_groups_share_a_step():
    many = {**FIRST, "dtype": "float16", "groups": 32}
    assert patch_shapes.merges(convolution(14, 128, 128, **many)) == (0, 2, 4, 8, 16)
    assert patch_shapes.merges(convolution(14, 512, 128, **many)) == (0, 2, 4)  # 16 channels each
    assert patch_shapes.merges(convolution(14, 96, 96, **many)) == (0,)  # words of two channels
    assert patch_shapes.merges(convolution(14, 24, 24, **many | {"groups": 6})) == (0, 2)
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
    program = PATCH.starters(PATCH_SERVED[3][1], arch)[0]
    assert program["taps"] == 50
    assert {each.workload.size["r"] for each in PATCH.cases(program, PATCH_SERVED[3][1], ())} == {5}


# ---- transposed convolutions phase by phase


PHASED, PHASED_MMA = FAMILIES["contraction_phased"], FAMILIES["contraction_phased_mma"]


@pytest.mark.parametrize("family", [PHASED, PHASED_MMA])
def test_starters_of_usual_types_do_not_spill(family):
    """The arguments of a phase are copied to registers, not to memory of the thread."""
    problem = transposed(dtype="float16" if family is PHASED_MMA else "float32", c=128, k_out=128)
    for program in family.starters(problem, lookup("sm_87"))[:4]:
        if program["block_m"] * program["block_n"] > 64 * 64:
            continue
        binary = compile_cubin(candidate(family, program, problem).source(), "sm_87")
        entry = binary.entries[family.name]
        assert entry.stack_bytes == entry.spill_stores == 0


def test_phases_are_the_sets_of_taps_that_outputs_meet():
    for stride, dilation, taps in product((1, 2, 3, 5), (1, 2, 3, 4), (1, 2, 3, 5)):
        _meets(stride, dilation, taps)


def _meets(stride: int, dilation: int, taps: int) -> None:
    sizes = transposed(h=6, r=taps, stride_h=stride, dilation_h=dilation, pad_top=0, pad_bottom=0).size
    sets = {tuple(r for r in range(taps) if (o - r * dilation) % stride == 0) for o in range(stride)} - {()}
    found, lengths = axis(sizes, "h"), [len(each) for each in sets]
    assert (found.phases, found.taps) == (len(sets), max(lengths))
    assert sum(lengths) == taps and min(lengths) == taps // found.phases
    outputs = output_size(sizes, "h", True)
    assert found.outputs == max(len(range(first, outputs, stride)) for first in range(stride))
    # Nothing else meets a pixel, by the index arithmetic of the reference.
    _, inside = _indices(sizes, "h", True)
    for output, tap in zip(*np.nonzero(inside), strict=True):
        assert any(tap in each and (output - each[0] * dilation) % stride == 0 for each in sets)


def test_the_convolution_of_all_phases_has_the_taps_that_are_walked():
    problem = transposed(n=1, h=16, w=16, c=128, k_out=64)
    other = all_phases(problem)
    assert phases(problem) == 4 and other.flops() == problem.flops() and least_depth(problem) == 4 * 128
    assert other.operator == "conv2d" and other.size["groups"] == 4
    assert least_depth(transposed(r=3, s=3)) == 32
    assert phases(transposed(stride_h=4, stride_w=4, r=2, s=3)) == 6
    assert phases(transposed(dilation_h=2, dilation_w=2)) == 1


def test_padding_may_cut_outputs_off():
    """Then no phase meets every pixel."""
    for pad, taps, stride in product(range(5), (1, 2, 4), (2, 3)):
        _is_served(pad, taps, stride)


def _is_served(pad: int, taps: int, stride: int) -> None:
    """Assert that an image of six pixels across has a potential, with ``pad`` at each end."""
    pads = dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), pad)
    problem = transposed(h=6, w=6, r=taps, s=taps, stride_h=stride, stride_w=stride, **pads)
    other, z = all_phases(problem), problem.size
    assert [output_size(other.size, side, False) for side in "hw"] == [axis(z, side).outputs for side in "hw"]
    assert PHASED.serves(problem, lookup("sm_87")) is None
    lattice = Space(problem, lookup("sm_87")).family(PHASED.name)
    starters = PHASED.starters(problem, lookup("sm_87"))
    assert starters and np.isfinite(lattice.potential(np.stack([lattice.point(each) for each in starters]))).all()


# ---- strips


STRIP = FAMILIES["contraction_strip"]
STRIP_SERVED = contract(STRIP.name).served


@pytest.mark.parametrize("index", range(len(STRIP_SERVED)))
def test_cases_have_the_lines_and_octets_of_their_program(index):
    lattice = space(STRIP.name, index)
    for point in random_legal(lattice, 20, seed=3):
        program = lattice.program(point)
        for case in STRIP.cases(program, lattice.workload, ()):
            assert STRIP.serves(case.workload, lattice.arch) is None, f"{case.name} of {program.to_json()}"
            call = strip_shapes.call_of(case.workload)
            own = {"lines": call.lines, "octets": call.octets, "planes": call.planes}
            assert own == {name: program[name] for name in own}, f"{case.name} of {program.to_json()}"


def test_fragments_are_read_without_bank_conflicts():
    """Outputs 6 and 2 elements apart, and whole stores of them: docs of the kernel say so."""
    for index in (0, 2):
        arch, workload = STRIP_SERVED[index]
        verdict = verify(candidate(STRIP, STRIP.starters(workload, lookup(arch))[0], workload), workload)
        assert verdict.counters["bank_conflicts"] == 0


def test_what_is_read_is_asked_of_strides():
    for _, workload in STRIP_SERVED:
        image, *rest = operator("conv2d").operands(workload)
        strides = {each.name: each.strides() for each in (image, *rest)}
        geometry = operator("conv2d").geometry(workload, strides)
        assert STRIP.reads(workload, geometry)
        apart = tuple(2 * stride for stride in strides["x"])
        assert not STRIP.reads(workload, operator("conv2d").geometry(workload, strides | {"x": apart}))
        above = (*strides["x"][:1], strides["x"][1] + 3, *strides["x"][2:])
        assert STRIP.reads(workload, operator("conv2d").geometry(workload, strides | {"x": above}))
