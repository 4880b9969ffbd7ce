"""The patch family beside its contract (test_contract.py): shapes of patches, streams, taps that are compiled in."""

from dataclasses import replace

import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.types.geometry import Geometry, Strides, Window
from gensor_kernels.programs.contraction.patch import shape as shapes
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.params import Tiling
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.build.pool import candidate
from gensor_tuner.strategies.request import Request, search
from tests.programs.workloads import contract, space
from tests.programs.workloads.contraction_packed import convolution
from tests.programs.workloads.contraction_patch import FIRST, patch_configurations
from tests.programs.workloads.window import padded

PATCH = FAMILIES["contraction_patch"]
SERVED = contract(PATCH.name).served


def test_blocks_share_the_channels_of_all_tiles():
    """Steps have all taps; what is left for others and how it is told is of stream_k.cuh. Nothing spills."""
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


def test_tiles_are_rows_of_the_output_or_a_run_of_one():
    assert shapes.tiles((14, 14), 64) == (4, 14, 4, 1)
    assert shapes.tiles((14, 14), 128) == (7, 14, 2, 1)  # not 9 and 5 rows
    assert shapes.tiles((38, 166), 64) == (1, 64, 38, 3)
    call = shapes.call_of(convolution(28, 32, 32, **FIRST, dtype="int8", stride_w=2, **padded()))
    assert shapes.shape(call, 64) == shapes.Shape(4, 14, 7, 1, 6 * 29)
    thin = shapes.call_of(convolution(28, 32, 32, 1, **FIRST, dtype="int8", stride_h=2, stride_w=2))
    assert shapes.shape(thin, 64).pixels == 4 * 14  # no pixels between those that outputs read


def test_short_rows_share_pixels():
    assert shapes.tiles((256, 256), 256, 16) == (16, 16, 16, 16)
    assert shapes.tiles((27, 20), 64, 8) == (7, 8, 4, 3)  # of the last row of tiles 6 rows
    call = shapes.call_of(convolution(28, 32, 32, **FIRST, dtype="float16", **padded()))
    assert shapes.shape(call, 256, 16).pixels == (14 + 2) * (16 + 2)
    assert not shapes.stored_whole(call, shapes.shape(call, 256, 16), 8, 16)  # rows of 28 outputs
    assert shapes.stored_whole(call, shapes.shape(call, 256, 16), 4, 16)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("row * own.row + column", "row * own.wide + column"),
        ("within(row, own.tall) && within(column, own.wide)", "within(column, own.wide)"),
        ("within(row, own.tall) && within(column, own.wide)", "within(row, own.tall)"),
    ],
)
def test_outputs_of_other_tiles_are_found_when_short_rows_are_stored(right: str, wrong: str):
    def edited(text: str) -> str:
        assert text.count(right) == 1
        return text.replace(right, wrong)

    [each] = [each for each in patch_configurations() if each.name == "patch bytes, short rows"]
    assert each.verify(edited).outcome == "failed"


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


def test_params_of_merged_groups():
    """Rows and k of merged groups are counted through; entries lie as many groups apart."""
    geometry = Geometry(
        (4, 196, 36), (1, 2, 32), Strides((0, 0, 144), 36, 1), Strides((0, 9, 7), 14, 1), Strides((0, 5, 784), 196, 1)
    )
    step = params.Step(1, strides=Strides((0, 0, 4), 1, 0))
    four = Tiling(tiles_m=1, tiles_n=1, split=1, k_per_split=144, raster=1, merged=4)
    apart = [Strides((outer, middle, 4 * inner), *rest) for (outer, middle, inner), *rest in (
        ((0, 0, 144), 36, 1), ((0, 9, 7), 14, 1), ((0, 5, 784), 196, 1))]  # fmt: skip
    expected = Geometry((16, 196, 144), (1, 2, 8), *apart)
    wanted = params.Step(1, strides=Strides((0, 0, 16), 1, 0))
    assert params.pack(geometry, four, steps=[step]) == params.pack(expected, replace(four, merged=0), steps=[wanted])


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("four = diagonal.word_of_group(filter, four);", ""),
        ("(u32)(first + filter) / (u32)filters", "(u32)filter / (u32)filters"),
        ("within((u32)four, (u32)diagonal.words)", "within((u32)four, (u32)diagonal.words + 1)"),
        ("within((u32)four, (u32)diagonal.words)", "within(four, diagonal.words)"),
        ("(tile.k_end - tile.k_begin) / MERGED_GROUPS", "tile.k_end - tile.k_begin"),
        ("store_shared(arranged + (item * 4 + tap * (PLANES * BLOCK_M * 16)), Vec<4>::zero())", ""),
    ],
)
def test_filters_of_other_groups_are_found_when_merged(right: str, wrong: str):
    def edited(text: str) -> str:
        assert text.count(right) == 1
        return text.replace(right, wrong)

    [each] = [each for each in patch_configurations() if each.name == "patch merged"]
    assert each.verify(edited).outcome in ("failed", "wrong")


def test_operands_of_merged_groups_lie_apart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(params, "_apart", lambda strides, count: strides.batch)
    [each] = [each for each in patch_configurations() if each.name == "patch merged"]
    assert each.verify(str).outcome in ("failed", "wrong")


def test_outputs_that_are_stored_together_belong_to_one_tile():
    call = shapes.call_of(convolution(27, 32, 32, **FIRST, dtype="int8", **padded()))
    assert not shapes.stored_whole(call, shapes.shape(call, 64), 4)  # 2 rows of 27 outputs
    assert shapes.stored_whole(call, shapes.shape(call, 64), 2)
    assert not shapes.stored_whole(call, shapes.shape(call, 16), 2)  # runs of 16 and 11 outputs
    small = shapes.call_of(convolution(7, 32, 32, **FIRST, dtype="int8", **padded()))
    assert shapes.stored_whole(small, shapes.shape(small, 64), 4)  # all in one


def test_a_window_is_read_back_from_its_bytes():
    window = Window((1, 2, 3), (4, 5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (15, 16), (17, 18), (19, 20), 21)
    assert Window.unpack(window.pack()) == window


def test_it_says_why_it_does_not_serve():
    arch = lookup("sm_87")
    assert "no convolution" in str(PATCH.serves(matmul(8, 8, 8), arch))
    assert "innermost" in str(PATCH.serves(convolution(14, 64, 64, dtype="float16"), arch))
    assert "float16, bfloat16 and int8" in str(PATCH.serves(convolution(14, 64, 64, **FIRST), arch))
    assert "4 bytes" in str(PATCH.serves(convolution(14, 3, 64, **FIRST, dtype="int8"), arch))
    assert "cp.async" in str(PATCH.serves(convolution(14, 64, 64, **FIRST, dtype="int8"), lookup("sm_75")))


def test_taps_may_be_compiled_in():
    arch = lookup("sm_87")
    coordinates = PATCH.coordinates(convolution(14, 64, 64, 9, **FIRST, dtype="int8"), arch)
    assert {c.name: c.values for c in coordinates}["taps"] == (0,)  # 81 would fill the registers
    program = PATCH.starters(SERVED[3][1], arch)[0]
    assert program["taps"] == 50
    assert {each.workload.size["r"] for each in PATCH.cases(program, SERVED[3][1], ())} == {5}


def test_the_walk_prefers_it_where_filters_are_many():
    """By the potential: a filter of 2 MB is not rewritten for 196 outputs."""
    workload = convolution(14, 512, 512, **FIRST, dtype="int8", **padded()).with_sizes(n=1)
    found = search(Request(workload, lookup("sm_87"), 0, "full"))
    assert found.best[0][0].family == "contraction_patch"
