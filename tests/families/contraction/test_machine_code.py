"""Hot loops, widths of accesses and stores of contraction kernels in SASS: no spills, no address arithmetic inside."""

import pytest

from gensor_kernels.build.sass import GLOBAL_ACCESSES, SHARED_ACCESSES
from gensor_kernels.operators.products.block_scaled import workload as block_scaled
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.windows import conv
from tests.families.lattices import BLOCKS, MMA, SIMT, TCGEN05, WGMMA
from tests.families.verified import machine_code

LARGE = (4096, 4096, 4096)
NT = {"trans_b": True}
TILE = {"raster": 1, "split_k": 1, "epilogue_fixed": 1, "min_blocks": 0}
WARPS = {"block_k": 32, "stages": 3, "copy": 1, "swizzle": 1, "instruction": 0, "epilogue_staged": 1} | TILE
GROUPS = {"block_k": 64, "cluster": 0, "persistent": 0, "vector_c": 16, "epilogue_staged": 1} | TILE | {"min_blocks": 1}
TALL = {"block_m": 256, "consumers": 2, "block_n": 128, "stages": 4}
WIDE = {"block_m": 128, "block_n": 256, "consumers": 2, "stages": 4}
IMAGE = {"n": 8, "h": 28, "w": 28, "c": 128, "k_out": 128, "r": 3, "s": 3, "dtype": "float16"}


# Instructions of the hot loop per matrix instruction: a loop that is not unrolled, a spill or an address computed again
# doubles them.
@pytest.mark.parametrize(
    ("tile", "most"),
    [
        ({"block_m": 128, "block_n": 128, "warp_m": 64, "warp_n": 64, "stages": 4}, 2.3),
        ({"block_m": 128, "block_n": 256, "warp_m": 64, "warp_n": 64}, 2.3),
        ({"block_m": 64, "block_n": 64, "warp_m": 32, "warp_n": 32, "block_k": 64}, 3.6),
        ({"block_m": 16, "block_n": 128, "block_k": 64, "warp_m": 16, "warp_n": 16, "stages": 4}, 8.0),
    ],
)
def test_warps_spend_their_instructions_on_products(tile, most):
    _, entry = machine_code(MMA, matmul(*LARGE), "sm_87", **WARPS | tile)
    matrix = sum(count for name, count in entry.hot_loop.items() if name.startswith("HMMA"))
    assert sum(entry.hot_loop.values()) <= most * matrix, entry.hot_loop
    assert set(entry.widths(GLOBAL_ACCESSES)) == {16}


def test_the_hot_loop_of_sgemm_is_multiply_adds():
    """256 threads of 8 x 8 outputs."""
    tile = {
        "block_m": 128, "block_n": 128, "block_k": 16, "thread_m": 8, "thread_n": 8, "vthread_m": 2, "vthread_n": 2,
        "lanes_m": 4, "pad": 1, "stages": 2, "epilogue_staged": 0,
    }  # fmt: skip
    binary, entry = machine_code(SIMT, matmul(*LARGE, dtype="float32"), "sm_87", **TILE | tile)
    assert binary.registers <= 168
    assert entry.hot_loop["FFMA"] == 16 * 64
    assert entry.hot_loop["FFMA"] >= 0.88 * sum(entry.hot_loop.values())
    assert entry.accesses["LDS"] == {16: 4 * 16} and set(entry.accesses["LDG"]) == {16}
    assert set(entry.widths(SHARED_ACCESSES)) <= {4, 16}


# More than ten instructions per product are address arithmetic that should be outside.
@pytest.mark.parametrize(
    ("workload", "values", "most"),
    [
        (matmul(*LARGE, **NT), WIDE | {"epilogue_fixed": 0}, 17),
        (matmul(*LARGE), TALL, 13),
        (
            matmul(*LARGE, trans_a=True, **NT),
            {"block_m": 192, "consumers": 3, "block_n": 192, "stages": 2, "block_k": 128},
            13,
        ),
        (
            matmul(*LARGE, **NT),
            {"block_m": 64, "consumers": 1, "block_n": 128, "stages": 3, "min_blocks": 2, "split_k": 2},
            17,
        ),
        (matmul(*LARGE, **NT, dtype="float32", math="tf32"), TALL | {"block_k": 32, "epilogue_fixed": 0}, 13),
        (matmul(*LARGE, **NT, dtype="int8"), TALL | {"block_k": 128, "epilogue_fixed": 0}, 13),
        (matmul(*LARGE, **NT), WIDE | {"block_n": 160, "persistent": 2, "epilogue_staged": 0}, 17),
        (matmul(*LARGE, **NT), TALL | {"block_n": 160, "stages": 3, "persistent": 1}, 13),
        (conv.workload(**IMAGE), TALL, 13),
        (conv.workload(**IMAGE, weights="rsck"), WIDE | {"block_n": 64, "persistent": 1, "epilogue_staged": 0}, 22),
        # 64 sums of each of two tiles are added.
        (
            matmul(*LARGE, **NT, dtype="float8_e4m3fn", out="bfloat16"),
            TALL | {"block_k": 128, "epilogue_fixed": 0, "overlapped": 0},
            13 + 16,
        ),
        # The same while the next products run: a round of two tiles, 32 sums each.
        (
            matmul(*LARGE, **NT, dtype="float8_e4m3fn", out="bfloat16"),
            TALL | {"block_m": 128, "consumers": 1, "block_n": 64, "block_k": 128, "min_blocks": 2, "overlapped": 1},
            14 + 8,
        ),
    ],
)
def test_warpgroups_spend_their_instructions_on_products(workload, values, most):
    values = GROUPS | values
    _, entry = machine_code(WGMMA, workload, "sm_90", **values)
    dtype = next(iter(workload.dtype.values()))
    opcode = {"int8": "IGMMA", "float8_e4m3fn": "QGMMA"}.get(dtype, "HGMMA")
    rows = 2 if values["block_k"] == 128 and dtype == "float16" else 1
    products = 4 * rows * (values["block_m"] // (1 if values["persistent"] == 2 else values["consumers"]) // 64)
    assert entry.hot_loop[opcode] == products
    assert entry.opcodes["UTMALDG"] >= 2 and entry.opcodes["USETMAXREG"] == 2
    assert sum(entry.hot_loop.values()) <= most * products, entry.hot_loop


def test_copies_are_for_both_blocks_of_a_pair():
    _, entry = machine_code(WGMMA, matmul(*LARGE, **NT), "sm_90", **GROUPS | WIDE | {"cluster": 1})
    assert entry.opcodes["UTMALDG"] == 2 and entry.opcodes["UCGABAR_WAIT"] >= 2
    # An arrival at the other block must not wait for what its thread has stored.
    assert entry.hot_loop["HGMMA"] == 4 and "MEMBAR" not in entry.hot_loop
    assert sum(entry.hot_loop.values()) <= 17 * 4, entry.hot_loop


@pytest.mark.parametrize("columns", [64, 128, 192, 256])
def test_scaled_sums_are_added_two_at_a_time(columns):
    """By warps that take registers over: sums, and two pieces of short sums, spill nothing."""
    values = {"block_n": columns, "cluster": 1, "stages": 4, "epilogue_staged": 3, "vector_c": 16}
    _, entry = machine_code(TCGEN05, block_scaled(*LARGE), "sm_100", **TILE | values | {"min_blocks": 1})
    assert entry.hot_loop["UTCQMMA"] == 4 and entry.opcodes["USETMAXREG"] == 2
    assert entry.opcodes["FFMA2"] == columns // 4 and "FFMA" not in entry.opcodes


@pytest.mark.parametrize("part", ["sm_89", "sm_120"])
@pytest.mark.parametrize("rows", [16, 64])
def test_float_scales_take_a_multiply_add_of_a_sum(part, rows):
    """Sums of a step begin without zeros; nothing is kept in local memory."""
    values = {"block_m": 2 * rows, "warp_m": rows, "block_n": 128, "warp_n": 32, "stages": 2, "min_blocks": 1}
    _, entry = machine_code(BLOCKS, block_scaled(*LARGE), part, **TILE | values)
    products = rows // 16 * 4 * 4
    assert (entry.hot_loop["QMMA"], entry.hot_loop["FFMA"]) == (products, products)
    assert sum(entry.hot_loop.values()) <= 4 * products + 100, entry.hot_loop


@pytest.mark.parametrize(("out", "counts"), [("float16", {"STSM": 16}), ("float32", {"STS": 64, "FSEL": 128})])
def test_a_box_takes_few_stores(out, counts):
    """Eight stores of four matrices, or stores of pairs, for which fragments of 32 bits change places."""
    values = GROUPS | WIDE | {"stages": 3, "persistent": 1, "epilogue_staged": 3}
    _, entry = machine_code(WGMMA, matmul(*LARGE, out=out, **NT), "sm_90", **values)
    found = {name: entry.opcodes[name] for name in ("STSM", "STS", "FSEL", "STG") if name in entry.opcodes}
    assert entry.opcodes["UTMASTG"] == 256 // (128 // {"float16": 2, "float32": 4}[out]) and found == counts


def test_operations_of_params_are_stored_by_copies_too():
    """In the loop of batches, next to the branch without operations."""
    values = GROUPS | WIDE | {"stages": 3, "persistent": 1, "cluster": 1, "epilogue_staged": 3, "epilogue_fixed": 0}
    _, entry = machine_code(WGMMA, matmul(*LARGE, **NT), "sm_90", **values)
    assert entry.opcodes["UTMASTG"] == 4 + 1 and entry.opcodes["STSM"] == 16 + 2
    assert not {"STS", "STG"} & entry.opcodes.keys() and "R2UR" not in entry.hot_loop
    assert sum(entry.hot_loop.values()) <= 13 * 4, entry.hot_loop
