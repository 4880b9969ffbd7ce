"""Our kernels of the workloads: those that dispatch would launch, by prediction, in the present text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import itemgetter

from benchmarks.sass.build import LANES, Build, cpu_seconds
from benchmarks.unseen import choices
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.dispatch.selection import load
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.dtypes import element_bytes
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import candidate
from gensor_tuner.shapes.reader import Row

#: Products of bfloat16 parts that stand for one of float32.
_FLOAT_PRODUCTS = 6
_PRODUCT_BYTES = 32  # along k of a product in tensor memory
_SPLIT_FLOATS = 5  # the coordinate `instruction` of contraction_mma


def served_programs(rows: Sequence[Row], arch: Arch) -> dict[str, Program]:
    """Return the Program that dispatch would launch for each row by prediction, by the row's name."""
    library, found = load.library(arch), {}
    for row in rows:
        if row.workload is None:
            continue
        if recorded := library.record(row.workload):
            found[row.name] = recorded.program
            continue
        programs = choices(row.workload, arch, library)["portfolio"]
        program, seconds = min(programs, key=itemgetter(1), default=(None, math.inf))
        if program is not None and seconds < math.inf:
            found[row.name] = program
    return found


def source_of(program: Program, workload: Workload) -> str:
    """Return the bound source of a Program."""
    return candidate(FAMILIES[program.family], program, workload).source()


def build_kernel(program: Program, workload: Workload, arch: Arch) -> Build:
    """Return the compiled kernel of a Program."""
    family = FAMILIES[program.family]
    began = cpu_seconds()
    binary = compile_cubin(source_of(program, workload), arch.target)
    seconds = cpu_seconds() - began
    configuration = describe(program)
    if binary.error is not None:
        return Build("ours", configuration, refused=binary.error.splitlines()[0])
    launches = family.launches(program, workload)
    main = next((each for each in launches if each.entry == program.family), launches[0])
    values = program.by_name
    return Build(
        "ours",
        configuration,
        binary.cubin,
        binary.target,
        main.entry,
        threads=main.block,
        shared_bytes=main.shared_bytes + binary.entries[main.entry].shared_bytes,
        seconds=seconds,
        **geometry(values, workload, program.family, main.block),
    )


def geometry(values: Mapping[str, int], workload: Workload, family: str, threads: int) -> dict[str, object]:
    """Return the fields of a Build that follow from a Program's coordinates."""
    dtypes = dict(workload.dtypes)
    element = float(element_bytes(next(iter(dtypes.values()))))
    result = float(element_bytes(dtypes["c"] if "c" in dtypes else next(reversed(dtypes.values()))))
    common = {"result_bytes": result, "element_bytes": element, "consumers": threads}
    if "block_q" in values:
        head, keys = values["head_tile"], values["block_k"]
        tile = (values["block_q"], head, keys)
        return (
            common
            | {"tile": tile, "stages": values["stages"], "step_bytes": 2 * keys * head * element}
            | {"multiplicity": 2}
        )
    if "threads_k" in values and "form" in values:
        return common | {"row": workload.sizes[-1][1], "row_threads": values["threads_k"]}
    if not {"block_m", "block_n", "block_k"} <= values.keys():
        return common
    m, n, k = values["block_m"], values["block_n"], values["block_k"]
    split = "floats" in family or values.get("instruction") == _SPLIT_FLOATS
    read = element * 1.5 if "floats" in family else element  # three parts of bfloat16 for each float32
    tensor, cluster = family.endswith("tcgen05"), values.get("cluster", 0)
    received = m + n / 2 if tensor and cluster else m + n  # a pair's blocks have half of B each
    shared = {1: m + n / 2, 2: m + n / 4, 3: (m + n) / 2} if tensor else {1: m + n / 2, 2: m / 2 + n}
    across = shared.get(cluster, m + n)  # blocks along m share tiles of B, along n those of A
    return common | {
        "tile": (m, n, k),
        "stages": values.get("stages", 1),
        "step_bytes": received * k * read,
        "l2_share": across / received,
        "multiplicity": _FLOAT_PRODUCTS if split else 1,
        "consumers": LANES if tensor else values["consumers"] * 128 if "consumers" in values else threads,
        "storing": 128 if tensor else 0,
        "product": round(m * n * _PRODUCT_BYTES / (2 if split else element)) if tensor else 0,
        "sums": 2 if tensor and not split else 1,
    }


def describe(program: Program) -> str:
    """Return a Program in a few words: its family, its tile, stages and splits."""
    values = program.by_name
    sides = [values[name] for name in ("block_m", "block_q", "block_n", "head_tile", "block_k") if name in values]
    parts = [program.family, "x".join(map(str, sides))]
    names = {
        "stages": "s",
        "warp_m": "wm",
        "warp_n": "wn",
        "split_k": "split",
        "stream": "stream",
        "cluster": "cluster",
    }
    parts += [f"{short}{values[name]}" for name, short in names.items() if values.get(name, 0) > 1]
    parts += [
        f"{name}{values[name]}" for name in ("threads_k", "threads_m", "vector", "items", "keep") if name in values
    ]
    return " ".join(part for part in parts if part)
