"""Products of 8-bit floats with scales per block: declaration, and Programs on the emulator."""

import numpy as np
import pytest

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import block_scaled, matmul
from gensor_kernels.operators.types.dtypes import decode, encode
from gensor_kernels.programs.contraction.wgmma import cost
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from tests.programs.lattices import WGMMA
from tests.programs.verified import verdict_without

from .small import ARCH, is_right, small

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
WORKLOAD = block_scaled.workload(512, 512, 1024)
VALUES = {"block_k": 128, "vector_c": 16}


def test_the_declaration_means_that():
    rng = np.random.default_rng(0)
    m, n, k = 3, 150, 272
    a, b = (decode(E4M3, encode(E4M3, rng.standard_normal(shape))) for shape in ((m, k), (n, k)))
    d, e = rng.uniform(0.5, 1.5, (m, 3)), rng.uniform(0.5, 1.5, (2, 3))
    wanted = np.zeros((m, n))
    for row, column, place in np.ndindex(m, n, k):
        scale = d[row, place // 128] * e[column // 128, place // 128]
        wanted[row, column] += a[row, place] * b[column, place] * scale
    declared = operator(block_scaled.NAME)
    found = declared.reference({"a": a, "b": b, "d": d, "e": e}, {"m": m, "n": n, "k": k})
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert declared.names == ("a", "b", "d", "e", "c")
    arrays = {"a": encode(E4M3, a), "b": encode(E4M3, b), "d": d.astype(np.float32), "e": e.astype(np.float32)}
    values = declared.expect(block_scaled.workload(m, n, k, out="float32"), arrays).values
    np.testing.assert_allclose(values, wanted, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize(
    ("workload", "values"),
    [
        (WORKLOAD, {}),
        (block_scaled.workload(512, 512, 1024, dtype_b=E5M2, out="float32"), {"block_n": 32, "split_k": 3}),
        (WORKLOAD, {"block_m": 128, "block_n": 128, "consumers": 2, "persistent": 1, "stages": 3, "cluster": 2}),
        (WORKLOAD, {"block_m": 128, "block_n": 16, "persistent": 2, "consumers": 2}),
        (WORKLOAD, {"block_m": 128, "block_n": 112, "consumers": 2, "persistent": 1, "cluster": 1}),
        (block_scaled.workload(512, 512, 1024, out="float32"), {"block_n": 96, "split_k": 2}),
        (WORKLOAD, {"block_m": 128, "block_n": 80, "epilogue_staged": 0}),
        (block_scaled.workload(512, 512, 1024, out="float16"), {"block_m": 128, "stream": 8, "persistent": 1}),
    ],
    ids=[
        "one tile",
        "split",
        "pairs",
        "in turns, two tiles of sums",
        "two scales, pairs",
        "two scales, split",
        "two scales, two tiles of sums",
        "stream",
    ],
)
def test_products_match_float64(workload, values):
    is_right(small(WGMMA, workload, **VALUES | values), workload)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("factor[i][half][0]", "factor[i][0][0]"),
        ("(panel * panel_stride +", "(0 * panel_stride +"),
        ("of_b = of_b + b_stride, --steps;", "--steps;"),
        ("const int step = tile.k_begin / BLOCK_K,", "const int step = 0,"),
        ("31, first = tile.row + row +", "31, first = tile.row +"),
    ],
    ids=["one row's scale", "first columns' scale", "first step's scale", "scales of a part", "another warpgroup's"],
)
def test_planted_bugs_are_found(before, after):
    each = small(WGMMA, WORKLOAD, **VALUES | {"block_m": 128, "consumers": 2, "split_k": 2})
    assert verdict_without(before, after, each, WORKLOAD).outcome == "wrong"


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ("(v >> 3) * 16 < border", "(v >> 3) * 16 <= border", "wrong"),
        ("(v >> 3) * 16 < border", "true", "wrong"),
        ("of_b + which * panel_stride", "of_b", "wrong"),
        ("factor[i][half][last]", "factor[i][0][last]", "wrong"),
        ("left && within(which, panels)", "left", "failed"),
        ("- (tile.column & (SCALED_COLUMNS - 1))", "", "wrong"),
    ],
    ids=["border", "first scale", "stride of scales", "one row's scale", "scales beyond the last", "tiles' columns"],
)
def test_planted_bugs_of_two_scales_are_found(before, after, outcome):
    each = small(WGMMA, WORKLOAD, **VALUES | {"block_m": 128, "block_n": 112, "consumers": 2})
    assert verdict_without(before, after, each, WORKLOAD).outcome == outcome


def test_tiles_have_two_scales_of_b_at_most():
    columns = next(c for c in WGMMA.coordinates(WORKLOAD, ARCH) if c.name == "block_n").values
    assert columns == (*range(16, 161, 16), 192, 256)
    for width in range(16, 257, 16):
        tiles = range(0, 128 * width, width)
        assert cost.scales_of_b(width, 128) == max((t + width - 1) // 128 - t // 128 + 1 for t in tiles)
    assert [cost.scales_of_b(n, 128) for n in (64, 112, 128, 160, 176, 240)] == [1, 2, 1, 2, 3, 3]


def test_what_is_served():
    assert Space(WORKLOAD, ARCH).names == ("contraction_wgmma",)
    odd = block_scaled.workload(64, 128, 520)
    for name, family in FAMILIES.items():
        assert family.serves(odd, ARCH) is not None, name
    with pytest.raises(UnsupportedError, match="float32"):
        block_scaled.workload_from_views({name: view for name, view in _views().items()})


def test_scales_cost_little():
    space, plain = (
        Space(w, ARCH).family("contraction_wgmma")
        for w in (
            block_scaled.workload(64, 7168, 2048),
            matmul.workload(64, 7168, 2048, dtype=E4M3, out="bfloat16", trans_b=True),
        )
    )
    values = VALUES | {"block_m": 64, "block_n": 64, "stages": 8, "consumers": 1}
    seconds = []
    for each in (space, plain):
        program = each.family.starters(each.workload, ARCH)[0].replace(**values)
        seconds.append(float(each.potential(each.point(program)[None])[0]))
    assert seconds[1] < seconds[0] < 1.1 * seconds[1]
    assert cost.SCALING > 0


def _views():
    views = {}
    for operand in operator(block_scaled.NAME).operands(WORKLOAD):
        kind = {"d": "float16", "e": "float32", "c": "bfloat16"}.get(operand.name, E4M3)
        views[operand.name] = block_scaled.contiguous(operand.shape, kind)
    return views
