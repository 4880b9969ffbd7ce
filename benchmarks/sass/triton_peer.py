"""Triton's kernels of the workloads, in published configurations, compiled without a driver."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata, util
from typing import Any

from benchmarks.sass.build import LANES, Build, Cache, cpu_seconds
from benchmarks.sass.workloads import Case, element_bytes, kind_of
from gensor_kernels.build.source import digest
from gensor_kernels.machine.arch import Arch

Tile = tuple[int, int, int, int, int]  # m, n, k, stages, warps

#: Compute-bound products: triton.ops.matmul of Triton 2.3, the first half for 16-bit floats, the second for int8;
#: before them the first of tutorial 03 of Triton 3 ("CUDA autotune config").
HALF: tuple[Tile, ...] = (
    *((128, 256, 64, 3, 8), (128, 256, 32, 3, 8), (256, 128, 32, 3, 8), (256, 64, 32, 4, 4), (64, 256, 32, 4, 4)),
    *((128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4), (128, 32, 32, 4, 4), (64, 32, 32, 5, 2)),
)
BYTE: tuple[Tile, ...] = (
    *((128, 256, 128, 3, 8), (256, 128, 128, 3, 8), (256, 64, 128, 4, 4), (64, 256, 128, 4, 4)),
    *((128, 128, 128, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 32, 64, 4, 4), (64, 32, 64, 5, 2)),
)
#: Products with few rows: triton.ops.matmul of Triton 2.3, get_configs_io_bound (2 warps up to 64 columns, else 4).
FEW_ROWS: tuple[Tile, ...] = tuple(
    (16, n, k, stages, 2 if n <= 64 else 4) for n, k, stages in itertools.product((32, 64, 128), (32, 64), (2, 4, 6))
)
#: Attention: tutorial 06, whose list is every product of these; decoding keeps 16 rows, the least of tl.dot.
ATTENTION = tuple(
    (queries, keys, stages, 4 if queries == 64 else 8)
    for queries, keys, stages in itertools.product((64, 128), (32, 64, 128), (2, 3))
)
DECODING = tuple((16, keys, stages, warps) for keys, stages, warps in itertools.product((32, 64), (2, 3, 4), (2, 4)))
#: Rows: tutorials 02 (softmax, persistent) and 05 (layer norm), one row at a time, by any number of warps.
ROW_WARPS = (1, 2, 4, 8, 16, 32)
#: Ways to multiply float32: by multiply-adds, and as products of narrower parts, with how many stand for one.
FLOAT_WAYS = (("tf32x3", 3), ("bf16x6", 6), ("ieee", 1))

_POINTERS = {
    "float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64",
    "int8": "*i8", "int32": "*i32", "float8_e4m3fn": "*fp8e4nv",
}  # fmt: skip


@dataclass(frozen=True)
class Configuration:
    """A kernel to compile: its function, pointer types, sizes, constants, and the Build fields that follow."""

    words: str
    function: str
    pointers: dict[str, str]
    constants: dict[str, Any]
    warps: int
    stages: int
    fields: dict[str, Any] = field(default_factory=dict)
    floats: tuple[str, ...] = ()  # arguments that are numbers, not sizes


def missing() -> str:
    """Return why there is no Triton; "" where there is one."""
    if util.find_spec("triton") is None:
        return "Triton is not installed: pip install 'gensor-kernels[compare]'"
    return ""


def version() -> str:
    """Return Triton's version."""
    return metadata.version("triton")


def builds(case: Case, arch: Arch, cache: Cache) -> Iterator[Build]:
    """Yield every configuration's kernel, refused ones too."""
    for each in configurations(case, arch):
        key = "\0".join(["triton", version(), arch.target, repr(each), _source(each.function)])
        yield cache.get(key, partial(_compiled, each, arch))


def configurations(case: Case, arch: Arch) -> Iterator[Configuration]:
    """Yield the configurations of a workload."""
    found: dict[str, Callable[[Case, Arch], Iterator[Configuration]]] = {
        "matmul": _matmuls, "conv2d": _convolutions, "attention": _attentions, "softmax": _rows, "layernorm": _rows,
    }  # fmt: skip
    yield from found[case.operator](case, arch)


def _matmuls(case: Case, arch: Arch) -> Iterator[Configuration]:
    types = case.dtypes
    few = case.sizes["m"] <= 16
    acc = {"int8": "int32", "float64": "float64"}.get(types["a"], "float32")
    ways = (
        (("tf32" if case.math == "tf32" else "ieee", 1),)
        if types["a"] != "float32" or case.math == "tf32"
        else FLOAT_WAYS
    )
    tiles = FEW_ROWS if few else _tiles(types["a"])
    functions = ["matmul", *(["matmul_descriptors"] if "wgmma" in arch.features and not few else [])]
    if types["a"] == "float32" and case.math != "tf32":
        functions, tiles = functions[:1], HALF[3:8]
    for function, (way, multiplicity), tile in itertools.product(functions, ways, tiles):
        m, n, k, stages, warps = tile
        constants = {
            "TRANS_B": case.transposed, "ACC": acc, "PRECISION": way,
            "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8,
        }  # fmt: skip
        words = f"{m}x{n}x{k} s{stages} w{warps}" + (f" {way}" if len(ways) > 1 else "")
        yield Configuration(
            words + (" tma" if function == "matmul_descriptors" else ""),
            function,
            {name: _POINTERS[types[name]] for name in "abc"},
            constants,
            warps,
            stages,
            _fields(case, (m, n, k), stages, warps, multiplicity),
        )


def _tiles(dtype: str) -> tuple[Tile, ...]:
    if dtype in ("float16", "bfloat16", "float32"):
        return (*HALF, *(tile for tile in BYTE if tile[2] <= 64))
    return (*BYTE, *HALF[1:8]) if kind_of(dtype) in ("s8", "f8") else (*HALF[3:], *HALF[1:2], *BYTE[5:])


def _fields(case: Case, tile: tuple[int, int, int], stages: int, warps: int, multiplicity: int) -> dict[str, Any]:
    m, n, k = tile
    element = element_bytes(case.dtypes["a"])
    return {
        "tile": tile, "stages": stages, "threads": warps * LANES, "consumers": warps * LANES,
        "step_bytes": (m + n) * k * element, "element_bytes": element,
        "result_bytes": element_bytes(case.dtypes["c"]), "multiplicity": multiplicity,
    }  # fmt: skip


def _convolutions(case: Case, arch: Arch) -> Iterator[Configuration]:
    sizes = case.sizes
    for m, n, k, stages, warps in (*HALF, *(tile for tile in BYTE if tile[2] <= 64)):
        constants = {
            "R": sizes["r"], "S": sizes["s"], "PAD": 1, "STRIDE": 1,
            "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8,
        }  # fmt: skip
        pointers = dict.fromkeys("xwy", _POINTERS[case.dtypes["a"]])
        fields = _fields(case, (m, n, k), stages, warps, 1)
        yield Configuration(f"{m}x{n}x{k} s{stages} w{warps}", "conv2d", pointers, constants, warps, stages, fields)


def _attentions(case: Case, arch: Arch) -> Iterator[Configuration]:
    head, one = case.sizes["head"], case.stream
    kind = _POINTERS[case.dtypes["a"]]
    for queries, keys, stages, warps in DECODING if one else ATTENTION:
        constants: dict[str, Any] = {"HEAD": head, "BLOCK_M": queries, "BLOCK_N": keys}
        pointers = dict.fromkeys("qkvo", kind)
        if one:
            pointers = dict.fromkeys("qkv", kind) | dict.fromkeys(("sums_out", "tops", "totals"), "*fp32")
        else:
            constants["CAUSAL"] = case.causal
        fields = _fields(case, (queries, head, keys), stages, warps, 2)
        fields["step_bytes"] = 2 * keys * head * fields["element_bytes"]
        fields["result_bytes"] = 4.0 if one else fields["result_bytes"]
        words = f"{queries}x{keys} s{stages} w{warps}"
        function = "decoding" if one else "attention"
        yield Configuration(words, function, pointers, constants, warps, stages, fields, ("scale",))


def _rows(case: Case, arch: Arch) -> Iterator[Configuration]:
    kind, columns = _POINTERS[case.dtypes["a"]], case.columns
    names = "xy" if case.operator == "softmax" else ("x", "gain", "bias", "y")
    for suffix, warps in itertools.product(("", "_rows"), ROW_WARPS):
        fields = {
            "threads": warps * LANES, "consumers": warps * LANES, "row": columns, "row_threads": warps * LANES,
            "element_bytes": element_bytes(case.dtypes["a"]), "result_bytes": element_bytes(case.dtypes["c"]),
        }  # fmt: skip
        words = f"w{warps}" + (" persistent" if suffix else "")
        yield Configuration(
            words, case.operator + suffix, dict.fromkeys(names, kind), {"BLOCK": columns}, warps, 2, fields, ("eps",)
        )


def _source(function: str) -> str:
    from benchmarks.sass import triton_kernels

    return digest(str(getattr(triton_kernels, function).raw_src))


def _compiled(each: Configuration, arch: Arch) -> Build:
    """Compile a configuration; Triton's own cache is a folder that is thrown away, so that seconds are seconds."""
    with tempfile.TemporaryDirectory(prefix="gensor-triton-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        began = cpu_seconds()
        try:
            kernel = _triton_compile(each, arch)
        except Exception as error:  # whatever its passes raise
            told = [line.strip() for line in str(error).splitlines() if line.strip(" ^")] or ["no reason"]
            return Build("triton", each.words, refused=f"{type(error).__name__}: {told[-1]}"[:200])
        seconds = cpu_seconds() - began
    shared = int(kernel.metadata.shared)
    if shared > arch.smem_per_block:
        reason = f"{shared} bytes of shared memory, of {arch.smem_per_block}"
        return Build("triton", each.words, refused=reason)
    return Build(
        "triton",
        each.words,
        kernel.asm["cubin"],
        arch.target,
        kernel.metadata.name,
        shared_bytes=shared,
        seconds=seconds,
        **each.fields,
    )


def _triton_compile(each: Configuration, arch: Arch) -> Any:
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from benchmarks.sass import triton_kernels

    function = getattr(triton_kernels, each.function)
    constants = each.constants | ({"ACC": getattr(tl, each.constants["ACC"])} if "ACC" in each.constants else {})
    signature = {}
    for name in function.arg_names:
        size = "fp32" if name in each.floats else "i32"
        signature[name] = "constexpr" if name in constants else each.pointers.get(name, size)
    divisible = [index for index, name in enumerate(function.arg_names) if name not in (*constants, *each.floats)]
    attributes = {(index,): [["tt.divisibility", 16]] for index in divisible}
    source = ASTSource(function, signature, constants, attributes)
    capability = int("".join(each for each in arch.name if each.isdigit()))
    options = {"num_warps": each.warps, "num_stages": each.stages}
    return triton.compile(source, target=GPUTarget("cuda", capability, LANES), options=options)
