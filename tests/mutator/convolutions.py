"""Convolutions the mutator tries its mutants on: every way to walk through a window, in both families of products."""

from __future__ import annotations

from dataclasses import replace

from gensor_kernels.operators.windows.conv import workload
from gensor_kernels.operators.windows.conv_prologue import workload as prepared

from .configuration import Configuration

SIMT = {
    "block_m": 16, "block_n": 16, "block_k": 8, "thread_m": 2, "thread_n": 2, "vthread_m": 1, "vthread_n": 1,
    "lanes_m": 4, "stages": 2, "pad": 0, "raster": 1, "split_k": 1, "epilogue_staged": 0, "epilogue_fixed": 0,
    "min_blocks": 0,
}  # fmt: skip
MMA = {
    "block_m": 32, "block_n": 32, "block_k": 32, "warp_m": 16, "warp_n": 16, "raster": 1, "split_k": 1,
    "epilogue_staged": 1, "epilogue_fixed": 0, "min_blocks": 0, "swizzle": 1,
}  # fmt: skip


def convolution_configurations() -> list[Configuration]:
    """Both orders of channels, transposed and not, with and without groups, in elements and in vectors."""
    single = {"instruction": 2, "block_k": 16}  # TF32: with channels outside, cp.async moves 4 bytes
    return [
        *_orders("simt", "sm_87", SIMT, "float32", 5),
        *_orders("mma cp.async", "sm_87", MMA | {"instruction": 0, "stages": 3, "copy": 1}, "float16", 8, single),
        *_orders("mma registers", "sm_75", MMA | {"instruction": 1, "stages": 2, "copy": 0}, "float16", 5),
    ]


def _orders(
    group: str, arch: str, values: dict[str, int], dtype: str, c: int, single: dict[str, int] | None = None
) -> list[Configuration]:
    def made(name: str, **more: object) -> Configuration:
        own, word = values, {"dtype": dtype}
        if single and "layout" in more:
            own, word = values | single, {"dtype": "float32", "math": "tf32"}
        given = workload(n=2, h=9, w=8, c=2 * c, k_out=2 * c, r=3, s=3, **word, **more)  # type: ignore[arg-type]
        ways = {"split_k": 2 if name == "first" else 1, "masked": int(name == "first")}
        return Configuration(f"conv {name}", group, arch, given, own | ways)

    def behind(given: Configuration) -> Configuration:
        image = prepared(("mul", "bias", "sigmoid"), given.workload)
        return replace(given, name=f"{given.name} prologue", workload=image, values=given.values | {"materialised": 0})

    inlined = [] if single else [behind(made("last", groups=2)), behind(made("first", layout="nchw"))]
    return [
        *inlined,
        made("last", groups=2),
        made("first", layout="nchw"),
        made("transposed last", transposed=True),
        made("transposed first", layout="nchw", transposed=True, groups=2),
    ]
