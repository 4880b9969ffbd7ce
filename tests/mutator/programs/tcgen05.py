"""Programs of contraction_tcgen05."""

from gensor_kernels.operators.products.block_scaled import workload as block_scaled
from gensor_kernels.operators.products.gated import workload as gated
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.products.matmul_prologue import workload as prepared
from gensor_kernels.operators.products.normed import with_norm
from gensor_kernels.operators.products.quantised import formatted
from gensor_kernels.operators.products.ragged import workload as ragged
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.conv import workload as convolution
from tests.mutator.engine.configuration import Configuration


def tcgen05_configurations() -> list[Configuration]:
    """Both layouts of both operands, one block and pairs, all store routes, a split, epilogues compiled in and not, all
    kinds of products, scales per block, gates, normalised rows, groups of different rows, and images read by their
    pixels."""
    nt, nn = matmul(256, 256, 256, trans_b=True), matmul(256, 256, 256)
    tn = matmul(256, 256, 256, trans_a=True, dtype="bfloat16", out="float32")
    odd, wide = matmul(255, 255, 256, trans_b=True), matmul(255, 252, 256, trans_b=True, out="float32")
    narrow = matmul(255, 272, 256, trans_b=True, dtype="int8", out="int8")
    fused = matmul(256, 256, 256, trans_b=True, epilogue="bias_relu")
    eight = matmul(256, 256, 256, dtype="float8_e4m3fn", dtype_b="float8_e5m2", out="bfloat16", trans_b=True)
    scaled = block_scaled(256, 256, 512)
    floats = matmul(256, 256, 256, dtype="float32", math="tf32", trans_b=True)
    image = convolution(n=8, h=28, w=28, c=128, k_out=128, r=3, s=3, dtype="float16")
    return [
        _tcgen05("k-contiguous", nt, block_n=16, raster=2),
        _tcgen05("n-contiguous", nn, block_n=64, epilogue_staged=0, min_blocks=2),
        _tcgen05("m-contiguous, split", tn, block_n=64, split_k=3),
        _tcgen05("split, single columns", odd, block_n=16, split_k=3, epilogue_staged=0, vector_c=2),
        _tcgen05("pair", nt, cluster=1, block_n=32, block_k=128),
        _tcgen05("pair, n-contiguous", nn, cluster=1, block_n=128, epilogue_staged=3),
        _tcgen05("stored by copies", nt, block_n=192, epilogue_staged=3),
        _tcgen05("stored by copies, a rest", nt, block_n=112, epilogue_staged=3),
        _tcgen05("stored by copies, 32 bits", wide, block_n=96, epilogue_staged=3),
        _tcgen05("stored by copies, 8 bits", narrow, block_n=128, block_k=128, epilogue_staged=3),
        _tcgen05("partial groups, 8 bits", narrow, block_n=16, block_k=128, epilogue_fixed=0),
        _tcgen05("8-bit floats of a pair", eight, cluster=1, block_n=32, block_k=128),
        _tcgen05("scales of blocks, split", scaled, block_n=48, block_k=128, consumers=2, split_k=2),
        _tcgen05("scales of blocks, pair", scaled, block_n=96, block_k=128, consumers=2, cluster=1, epilogue_staged=3),
        _tcgen05("rounded floats", floats, block_n=16, block_k=32, vector_c=16),
        _tcgen05("compiled epilogue", fused, block_n=16),
        _tcgen05("gate", gated("bias_swiglu", 256, 128, 256, trans_b=True), block_n=16),
        _tcgen05("gate of a pair", gated("reglu", 256, 128, 256), block_n=64, cluster=1),
        _tcgen05(
            "normalised", with_norm("layernorm", odd, 2), block_n=256, epilogue_staged=0, epilogue_fixed=0, vector_c=2
        ),
        _tcgen05("rows of groups", ragged(8, 256, 128, 256), block_n=64, raster=2),
        _tcgen05("pixels", image, block_n=16),
        _tcgen05("pixels of a pair", image, block_n=32, cluster=1),
        _tcgen05("any epilogue, single columns", odd, block_n=16, epilogue_fixed=0, vector_c=2),
    ]


def paired_configurations() -> list[Configuration]:
    """Two pairs along m and along n: both layouts of both operands, all store routes, a split, a gate, normalised rows,
    scales per block and those of a block-scaled format, and parts of floats."""
    nt, nn = matmul(512, 256, 256, trans_b=True), matmul(512, 256, 256)
    tn = matmul(512, 256, 256, trans_a=True, dtype="bfloat16", out="float32")
    eight = matmul(512, 256, 512, dtype="float8_e4m3fn", out="bfloat16", trans_b=True)
    norm, scaled = with_norm("layernorm", matmul(255, 255, 256, trans_b=True), 2), block_scaled(256, 256, 512)
    along_m, along_n = {"cluster": 2}, {"cluster": 3}
    return [
        _tcgen05("pairs along m", nt, **along_m, block_n=32, raster=2),
        _tcgen05("pairs along n", nt, **along_n, block_n=32, block_k=128, stages=3),
        _tcgen05("pairs along m, n-contiguous, copies", nn, **along_m, block_n=128, epilogue_staged=3),
        _tcgen05("pairs along n, m-contiguous, split", tn, **along_n, block_n=128, split_k=3),
        _tcgen05("pairs along m, 8-bit floats", eight, **along_m, block_n=96, block_k=128, stages=3),
        _tcgen05("pairs along n, 8-bit floats, copies", eight, **along_n, block_n=64, block_k=256, epilogue_staged=3),
        _tcgen05("pairs along m, gate", gated("reglu", 256, 128, 256), **along_m, block_n=64),
        _tcgen05("pairs along n, gate", gated("bias_swiglu", 256, 128, 256, trans_b=True), **along_n, block_n=32),
        _tcgen05("pairs along n, normalised", norm, **along_n, block_n=64, vector_c=2, epilogue_fixed=0),
        _tcgen05("pairs along m, scales of blocks", scaled, **along_m, block_n=96, block_k=128, consumers=2),
        _tcgen05(
            "pairs along n, nvfp4", formatted(256, 256, 576, "nvfp4"), **along_n, block_k=256, block_n=160, split_k=2
        ),
        _tcgen05("pairs along m, mxfp8", formatted(256, 256, 640, "mxfp8"), **along_m, block_k=128, block_n=32),
    ]


def scaled_configurations() -> list[Configuration]:
    """Both operands in every block-scaled format, one to four words of scales to a step, by one block and pairs, split,
    with room for the sums of one tile or of two."""
    wide, narrow = {"block_k": 256, "block_n": 160}, {"block_k": 128, "block_n": 32}
    return [
        _tcgen05("mxfp8", formatted(256, 256, 640, "mxfp8"), **narrow),
        _tcgen05("mxfp8 of a pair", formatted(256, 256, 640, "mxfp8_e5m2"), **wide, cluster=1),
        _tcgen05("mxfp4, split", formatted(256, 256, 640, "mxfp4"), block_k=256, block_n=32, split_k=2, stages=3),
        _tcgen05("mxfp4 of a pair", formatted(256, 256, 640, "mxfp4"), block_k=512, cluster=1, epilogue_staged=3),
        _tcgen05("nvfp4", formatted(256, 256, 576, "nvfp4", epilogue=("scale",)), block_k=256, block_n=16),
        _tcgen05("nvfp4 of a pair", formatted(256, 256, 576, "nvfp4"), **wide, cluster=1, epilogue_fixed=0),
    ]


def rewritten_configurations() -> list[Configuration]:
    """Operands that are copied, prepared, packed or divided first, by one block and by pairs."""
    odd, turned = matmul(77, 93, 75, batch=2), matmul(77, 92, 92, dtype="int8", trans_a=True, batch=2)
    before = prepared(("mul", "bias"), matmul(77, 96, 200, trans_b=True, batch=2), "float32")
    sizes = {"n": 2, "h": 9, "w": 9, "c": 20, "k_out": 20, "r": 3, "s": 3, "layout": "nchw", "groups": 2}
    packed = convolution(**sizes, dtype="float16", epilogue="bias_relu")
    floats = matmul(77, 93, 1005, batch=2, dtype="float32")
    fused = matmul(80, 96, 1000, dtype="float32", trans_b=True, epilogue="bias_relu")
    image = {"n": 2, "h": 8, "w": 7, "k_out": 20, "r": 3, "s": 3, "dtype": "float32"}
    last, first = convolution(**image, c=113), convolution(**image, c=113, layout="nchw")
    return [
        _tcgen05("odd, split", odd, "aligned_tcgen05", split_k=2, vector_c=2),
        _tcgen05("turned, pair", turned, "aligned_tcgen05", block_k=128, cluster=1),
        _tcgen05("two vectors in front", before, "prepared_tcgen05", split_k=2),
        _tcgen05("packed pixels of a pair", packed, "packed_tcgen05", block_n=32, vector_c=2, cluster=1),
        _tcgen05("parts, split", floats, "floats_tcgen05", block_n=16, split_k=2, vector_c=4),
        _tcgen05("parts of a pair", fused, "floats_tcgen05", block_n=32, cluster=1, raster=2),
        _tcgen05("parts of pairs along n", fused, "floats_tcgen05", block_n=32, cluster=3, vector_c=4),
        _tcgen05("turned, pairs along m", turned, "aligned_tcgen05", block_k=128, cluster=2),
        _tcgen05("parts of pixels, pair", last, "floats_tcgen05", block_n=32, cluster=1, vector_c=4),
        _tcgen05("parts of pixels as columns", first, "floats_tcgen05", block_n=32, cluster=1, vector_c=4),
    ]


def _tcgen05(name: str, workload: Workload, group: str = "tcgen05", **values: int) -> Configuration:
    base = {
        **{"block_m": 128, "block_n": 64, "block_k": 64, "split_k": 1, "raster": 1, "cluster": 0, "persistent": 1},
        **{"stages": 2, "consumers": 1, "epilogue_staged": 1, "epilogue_fixed": 1, "vector_c": 16},
        "min_blocks": 1,
    }
    return Configuration(name, group, "sm_100", workload, base | values)
