"""Workloads of the winograd family that tests share, and the small Programs its mutants are tried on."""

from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.core.program import Program
from tests.programs.workloads.contraction_harness import Constants

from . import Contract, product_and_reduction
from .window import padded


def convolution(side: int, c: int, k: int, n: int = 2, **more) -> Workload:
    """A square 3 x 3 convolution under math "winograd"."""
    return conv.workload(
        **{"n": n, "h": side, "w": side, "c": c, "k_out": k, "r": 3, "s": 3, "math": "winograd"} | more
    )


def resources(constants: Constants, workload: Workload) -> tuple[int, int]:
    """(threads, shared bytes) as the top of winograd.cu says."""
    v = {name: value for name, value in constants.items() if isinstance(value, int)}
    down, across = v["BLOCK_M"] // v["THREAD_M"], v["BLOCK_N"] // v["THREAD_N"]
    pad = 32 // min(v["BLOCK_K"], 8)
    of_filters = not v["FILTERS_LAST"] and not v["PREPARED"]
    by_channel = v["CHANNELS_LAST"] or of_filters, v["CHANNELS_LAST"] and of_filters
    rows = v["BLOCK_M"] + by_channel[0] * pad + v["BLOCK_N"] + by_channel[1] * pad
    store_rows = min(v["THREAD_M"], 16 // (v["THREAD_N"] * v["HELD"]))
    slab_row = next(4 * c for c in range(v["BLOCK_N"] // 4, 1000) if c % 8 == across % 8)
    tiles = v["STAGES"] * 64 * v["BLOCK_K"] * rows
    return 16 // v["HELD"] * down * across, max(tiles, 2 * 64 * store_rows * down * slab_row)


def entries(program: Program) -> list[str]:
    """Filters may be transformed in front."""
    return ["winograd_filters"] * program["prepared"] + product_and_reduction(program)


CONTRACT = Contract(
    [
        ("sm_87", convolution(28, 64, 64, layout="nchw", epilogue="bias_relu", **padded())),
        ("sm_90", convolution(15, 33, 50, layout="nchw", **padded(2))),
        ("sm_90", convolution(28, 64, 64, epilogue="bias_add_relu", **padded())),
        ("sm_75", convolution(14, 67, 45, **padded())),
        ("sm_87", convolution(56, 32, 128, weights="rsck")),
        ("sm_89", convolution(14, 64, 64, layout="nchw", out="float16", **padded())),
    ],
    entries=entries,
    resources=resources,
    fewest_starters=3,
    conflict_free=lambda program: True,
)


def _mutated(**values: int) -> dict[str, int]:
    base = {"block_m": 16, "block_n": 32, "block_k": 8, "split_k": 1, "raster": 1, "stages": 2, "prepared": 0}
    base |= {"thread_m": 4, "thread_n": 4, "held": 1}
    return base | {"epilogue_fixed": 0, "min_blocks": 0, "vector_c": 4} | values


#: Program by name: both layouts, pairs that threads share evenly and not, idle threads at the end, prepared filters,
#: splits, both widths.
MUTATED = {
    "channels first": (convolution(15, 33, 50, layout="nchw"), _mutated(block_m=8, thread_m=2)),
    "channels last": (convolution(15, 33, 50), _mutated(thread_n=8, held=2, stages=1, thread_m=2)),
    "filters last, split": (convolution(15, 33, 48, weights="rsck"), _mutated(split_k=3, raster=2, prepared=1)),
    "pairs, split": (convolution(14, 32, 32, layout="nchw"), _mutated(split_k=2, vector_c=8, block_k=4)),
    "compiled epilogue": (
        convolution(14, 32, 32, layout="nchw", epilogue="bias_relu_scale"),
        _mutated(epilogue_fixed=1, vector_c=8, stages=1),
    ),
}
