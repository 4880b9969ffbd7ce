"""Source of CUTLASS kernels: one instantiation each, and an array with its shared bytes, threads and stages."""

from __future__ import annotations

from collections.abc import Mapping

_TYPES = {
    "float16": "cutlass::half_t", "bfloat16": "cutlass::bfloat16_t", "float32": "float", "float64": "double",
    "int8": "int8_t", "int32": "int32_t", "float8_e4m3fn": "cutlass::float_e4m3_t",
}  # fmt: skip
#: m, n, k of mma.sync by the kind of its operands, and the first architecture that has it.
_INSTRUCTIONS = {
    "f16": ("16, 8, 16", "Sm80"), "tf32": ("16, 8, 8", "Sm80"), "s8": ("16, 8, 32", "Sm80"),
    "f8": ("16, 8, 32", "Sm89"), "f64": ("8, 8, 4", "Sm80"),
}  # fmt: skip

_LAUNCHED = """
using K = {kernel};
template __global__ void cutlass::Kernel<K>(K::Params);
__device__ int facts[4] = {{int(sizeof(K::SharedStorage)), K::kThreadCount, {stages}, K::kThreadCount}};
"""

_PRODUCT = """
#include "cutlass/cutlass.h"
#include "cutlass/gemm/device/gemm.h"
using namespace cutlass;
using Gemm = gemm::device::Gemm<
    {a}, layout::RowMajor, {b}, layout::{layout}, {c}, layout::RowMajor, {sum}, arch::{op_class}, arch::{arch},
    gemm::GemmShape<{m}, {n}, {k}>, gemm::GemmShape<{warp_m}, {warp_n}, {k}>, gemm::GemmShape<{instruction}>,
    epilogue::thread::LinearCombination<{c}, {vector}, {sum}, {sum}>,
    gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, {stages}, {align_a}, {align_b}, false, arch::{operation}>;
"""

_CONVOLUTION = """
#include "cutlass/cutlass.h"
#include "cutlass/conv/kernel/default_conv2d_fprop.h"
#include "cutlass/conv/device/implicit_gemm_convolution.h"
using namespace cutlass;
using Conv = conv::device::ImplicitGemmConvolution<typename conv::kernel::DefaultConv2dFprop<
    half_t, layout::TensorNHWC, half_t, layout::TensorNHWC, half_t, layout::TensorNHWC, float,
    arch::OpClassTensorOp, arch::Sm80,
    gemm::GemmShape<{m}, {n}, {k}>, gemm::GemmShape<{warp_m}, {warp_n}, {k}>, gemm::GemmShape<16, 8, 16>,
    epilogue::thread::LinearCombination<half_t, 8, float, float>,
    gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, {stages}, arch::OpMultiplyAdd,
    conv::IteratorAlgorithm::kOptimized, conv::StrideSupport::kUnity, 8, 8>::Kernel>;
"""

_GROUP = """
#include "cutlass/cutlass.h"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
using namespace cute;
using TileShape_ = Shape<Int<{m}>, Int<{n}>, Int<{k}>>;
using ClusterShape_ = Shape<Int<{cluster}>, _1, _1>;
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape_, ClusterShape_,
    cutlass::epilogue::collective::EpilogueTileAuto, {sum}, {scalar},
    {c}, cutlass::layout::RowMajor, {vector}, {c}, cutlass::layout::RowMajor, {vector},
    cutlass::epilogue::TmaWarpSpecialized{cooperative}>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, {a}, cutlass::layout::RowMajor, {align}, {b},
    cutlass::layout::{layout}, {align}, {sum}, TileShape_, ClusterShape_,
    cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecialized{schedule}>::CollectiveOp;
using K = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
template __global__ void cutlass::device_kernel<K>(CUTLASS_GRID_CONSTANT typename K::Params const);
__device__ int facts[4] = {{K::SharedStorageSize, int(K::MaxThreadsPerBlock), Mainloop::DispatchPolicy::Stages, 256}};
"""


def product(
    types: Mapping[str, str], layout: str, tile: tuple[int, ...], kind: str, operation: str = "OpMultiplyAdd"
) -> str:
    """Return the source of a product on tensor cores through mma.sync (CUTLASS 2)."""
    instruction, arch = _INSTRUCTIONS[kind]
    align = 1 if kind == "f64" else 128 // _bits(types["a"])
    return _gemm(types, layout, tile, "OpClassTensorOp", arch, instruction, align, operation)


def simt(types: Mapping[str, str], layout: str, tile: tuple[int, ...]) -> str:
    """Return the source of a product by multiply-adds of the CUDA cores (CUTLASS 2)."""
    return _gemm(types, layout, tile, "OpClassSimt", "Sm80", "1, 1, 1", 1, "OpMultiplyAdd")


def _gemm(
    types: Mapping[str, str],
    layout: str,
    tile: tuple[int, ...],
    op_class: str,
    arch: str,
    instruction: str,
    align: int,
    operation: str,
) -> str:
    m, n, k, stages, along_m, along_n = tile
    vector = 1 if op_class == "OpClassSimt" or types["c"] == "float64" else 128 // _bits(types["c"])
    text = _PRODUCT.format(
        **{name: _TYPES[types[name]] for name in "abc"},
        **{"m": m, "n": n, "k": k, "warp_m": m // along_m, "warp_n": n // along_n, "stages": stages},
        **{"layout": layout, "op_class": op_class, "arch": arch, "instruction": instruction, "operation": operation},
        **{"sum": _sum(types["a"]), "vector": vector, "align_a": align, "align_b": align},
    )
    return text + _LAUNCHED.format(kernel="Gemm::GemmKernel", stages=stages)


def convolution(tile: tuple[int, ...]) -> str:
    """Return the source of a float16 convolution, channels last, as an implicit GEMM (CUTLASS 2)."""
    m, n, k, stages, along_m, along_n = tile
    sides = {"m": m, "n": n, "k": k, "warp_m": m // along_m, "warp_n": n // along_n}
    kernel = "Conv::UnderlyingKernel"
    return _CONVOLUTION.format(**sides, stages=stages) + _LAUNCHED.format(kernel=kernel, stages=stages)


def group_product(
    types: Mapping[str, str], kind: str, transposed: bool, tile: tuple[int, int, int], cluster: int, schedule: str
) -> str:
    """Return the source of a product on wgmma with tensor copies and specialised warps (CUTLASS 3).

    TF32 has its second operand stored as (n, k): wgmma reads no other order of it.
    """
    m, n, k = tile
    return _GROUP.format(
        **{name: "cutlass::tfloat32_t" if kind == "tf32" and name != "c" else _TYPES[types[name]] for name in "abc"},
        **{"m": m, "n": n, "k": k, "cluster": cluster, "schedule": schedule},
        cooperative="Cooperative" if schedule == "Cooperative" else "",
        layout="ColumnMajor" if transposed or kind == "tf32" else "RowMajor",
        sum=_sum(types["a"]),
        scalar=_sum(types["a"]),
        vector=128 // _bits(types["c"]),
        align=128 // _bits(types["a"]),
    )


def _sum(dtype: str) -> str:
    return {"int8": "int32_t", "float64": "double"}.get(dtype, "float")


def _bits(dtype: str) -> int:
    return {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "int8": 8, "int32": 32}.get(dtype, 8)
