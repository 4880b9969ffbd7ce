"""CUTLASS's kernels of the workloads, in configurations of its own generator, compiled by nvcc without a driver."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache as cached
from functools import partial
from importlib import metadata, util
from pathlib import Path

from benchmarks.sass import cutlass_kernels as source
from benchmarks.sass.build import Build, Cache, cpu_seconds
from benchmarks.sass.workloads import Case, element_bytes, kind_of
from gensor_kernels.build.elf import code_sections, sections
from gensor_kernels.machine.arch import Arch

_WHEEL = "nvidia-cutlass"
_PACKAGE = "cutlass_library"
TIMEOUT = 900.0  # seconds of one compilation
_FACTS = struct.Struct("<4i")  # shared bytes, threads, stages, threads that share a tile

Tile = tuple[int, int, int, int, int, int]  # m, n, k, stages, warps along m and n
#: cutlass_library/generator.py, GenerateSM80_TensorOp_16816, and _1688 (k halved), _16832_TN (k doubled).
HALF: tuple[Tile, ...] = (
    *((128, 256, 32, 3, 2, 4), (256, 128, 32, 3, 4, 2), (128, 128, 32, 4, 2, 2), (64, 256, 32, 4, 1, 4)),
    *((256, 64, 32, 4, 4, 1), (128, 256, 64, 3, 2, 4), (128, 128, 64, 3, 2, 2)),
)
FEW_ROWS: tuple[Tile, ...] = ((64, 64, 32, 10, 2, 2), (64, 64, 64, 5, 2, 2), (64, 128, 64, 3, 2, 2))
#: GenerateSM80_TensorOp_884.
DOUBLE: tuple[Tile, ...] = (
    (128, 128, 16, 3, 4, 2),
    (128, 64, 16, 3, 2, 2),
    (64, 128, 16, 3, 2, 2),
    (64, 64, 16, 4, 2, 2),
)
#: GenerateSM80_Simt_f32, and example 27 (float32 by three products of TF32).
SIMT: tuple[Tile, ...] = ((256, 128, 8, 5, 4, 2), (128, 256, 8, 5, 2, 4), (128, 128, 8, 5, 4, 2), (128, 64, 8, 5, 2, 2))
SIMT_DOUBLE: tuple[Tile, ...] = ((128, 128, 8, 3, 4, 2), (128, 64, 8, 3, 2, 2), (64, 64, 8, 3, 2, 1))
FAST_FLOAT: tuple[Tile, ...] = ((128, 64, 16, 3, 2, 2), (128, 128, 16, 3, 4, 2), (64, 64, 32, 3, 2, 2))
#: GenerateSM90_TensorOp_16b_WGMMA and the like: m, n, bytes of k, cluster along m, schedule.
GROUP = (
    (128, 256, 128, 2, "Cooperative"),
    (128, 128, 128, 2, "Cooperative"),
    (64, 256, 128, 2, "Pingpong"),
)


@dataclass(frozen=True)
class Configuration:
    """A kernel to compile: its source, and the fields of its Build that follow.

    Attributes
    ----------
    words, source : str
        What identifies it.
    tile : tuple of int
        m, n, k of a block's step; ping-pong works on two tiles at once, which count as one of twice the rows.
    multiplicity : int
        Products that stand for one.
    sides : int
        Rows and columns of operand tiles that a block copies for one step; 0 stands for m + n.
    l2_share : float
        Share of these bytes that L2 delivers to each block of a cluster.
    """

    words: str
    source: str
    tile: tuple[int, int, int]
    multiplicity: int = 1
    sides: int = field(default=0, repr=False)  # follows from the words, as the next
    l2_share: float = field(default=1.0, repr=False)


@cached
def missing() -> str:
    """Return why nothing can be compiled; "" where it can."""
    if shutil.which("nvcc") is None:
        return "nvcc is not on PATH: install a CUDA toolkit"
    if include() is None:
        return "CUTLASS's headers are not installed: pip install 'gensor-kernels[compare]'"
    return ""


def include() -> Path | None:
    """Return the folder of CUTLASS's headers; importing its package would import CUDA's bindings."""
    found = util.find_spec(_PACKAGE)
    folders = (
        [] if found is None else [Path(each, "source", "include") for each in found.submodule_search_locations or ()]
    )
    return next((each for each in folders if (each / "cutlass" / "cutlass.h").is_file()), None)


@cached
def version() -> str:
    """Return the versions of the headers and of nvcc."""
    told = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return f"{metadata.version(_WHEEL)} {told.splitlines()[-1]}"


def refusal(case: Case) -> str:
    """Return why CUTLASS has no kernel of a workload; "" where it has."""
    if case.operator in ("matmul", "conv2d"):
        return ""
    why = ": it is an example, which the wheel does not have" if case.operator == "attention" else ""
    return f"CUTLASS's headers have no {case.operator}{why}"


def builds(case: Case, arch: Arch, cache: Cache) -> Iterator[Build]:
    """Yield every configuration's kernel, refused ones too."""
    for each in configurations(case, arch):
        key = "\0".join(["cutlass", version(), arch.target, repr(each)])
        yield cache.get(key, partial(_compiled, each, case, arch))


def configurations(case: Case, arch: Arch) -> Iterator[Configuration]:
    """Yield the configurations of a workload on an arch."""
    if case.operator == "conv2d":
        yield from (_of("", tile, source.convolution(tile)) for tile in HALF)
        return
    types, kind = case.dtypes, "tf32" if case.math == "tf32" else kind_of(case.dtypes["a"])
    layout = "ColumnMajor" if case.transposed else "RowMajor"
    few = case.sizes["m"] <= 16
    if kind in ("f16", "tf32", "s8", "f8") and "wgmma" in arch.features and not few:
        for m, n, k_bytes, cluster, schedule in GROUP:
            k = k_bytes // int(element_bytes(types["a"]))
            text = source.group_product(types, kind, case.transposed, (m, n, k), cluster, schedule)
            tiles = 2 if schedule == "Pingpong" else 1
            words = f"{m}x{n}x{k} c{cluster} {schedule.lower()}" + (" tn" if kind == "tf32" else "")
            share = (m + n / cluster) / (m + n)  # blocks of a cluster are side by side along m
            yield Configuration(words, text, (m * tiles, n, k), 1, tiles * (m + n), share)
    elif kind == "f32":
        yield from (_of("simt", tile, source.simt(types, layout, tile)) for tile in SIMT)
        for tile in FAST_FLOAT:
            yield _of("tf32x3", tile, source.product(types, layout, tile, "tf32", "OpMultiplyAddFastF32"), 3)
    elif kind == "f64" and not arch.rate("mma_f64"):
        yield from (_of("simt", tile, source.simt(types, layout, tile)) for tile in SIMT_DOUBLE)
    elif kind == "f64":
        yield from (_of("", tile, source.product(types, layout, tile, kind)) for tile in DOUBLE)
    else:
        factor = {"f16": 1.0, "tf32": 0.5}.get(kind, 2.0)
        for m, n, k, stages, along_m, along_n in FEW_ROWS if few else HALF:
            tile = (m, n, int(k * factor), stages, along_m, along_n)
            operation = "OpMultiplyAddSaturate" if kind == "s8" else "OpMultiplyAdd"
            yield _of("", tile, source.product(types, layout, tile, kind, operation))


def _of(words: str, tile: Tile, text: str, multiplicity: int = 1) -> Configuration:
    m, n, k, stages, along_m, along_n = tile
    told = f"{m}x{n}x{k} s{stages} w{along_m}x{along_n} {words}".strip()
    return Configuration(told, text, (m, n, k), multiplicity)


def _compiled(each: Configuration, case: Case, arch: Arch) -> Build:
    with tempfile.TemporaryDirectory(prefix="gensor-cutlass-") as folder:
        text, cubin = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        text.write_text(each.source, encoding="utf-8")
        options = ["-cubin", "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-w", f"-arch={arch.target}"]
        command = ["nvcc", *options, f"-I{include()}", str(text), "-o", str(cubin)]
        began = cpu_seconds()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return Build("cutlass", each.words, refused=f"not compiled within {TIMEOUT:.0f} seconds")
        seconds = cpu_seconds() - began
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            return Build("cutlass", each.words, refused=(errors or ["nvcc failed"])[0].split(": ", 1)[-1][:200])
        binary = cubin.read_bytes()
    entry = max(code_sections(binary) or (), key=lambda section: len(section[1]))[0]
    shared, threads, stages, sharing = _FACTS.unpack_from(sections(binary)[".nv.global.init"])
    if shared > arch.smem_per_block:
        reason = f"{shared} bytes of shared memory, of {arch.smem_per_block}"
        return Build("cutlass", each.words, refused=reason)
    m, n, k = each.tile
    element = element_bytes(case.dtypes["a"])
    return Build(
        "cutlass",
        f"{each.words} s{stages}" if " s" not in each.words else each.words,
        binary,
        arch.target,
        entry,
        threads=threads,
        consumers=sharing,
        shared_bytes=shared,
        tile=each.tile,
        stages=stages,
        step_bytes=(each.sides or m + n) * k * element,
        l2_share=each.l2_share,
        element_bytes=element,
        result_bytes=element_bytes(case.dtypes["c"]),
        multiplicity=each.multiplicity,
        seconds=seconds,
    )
