"""Static figures of each family from compilers and the emulator: `python -m benchmarks.static_figures [--arch ARCH
...]`.

For a sample of workloads and every arch, the family's default Program with the least predicted time is compiled and
executed at its verification cases. The table in docs/static-figures.md has: registers and spills of the main entry,
shared memory, bytes of global accesses, instructions of the hot loop, bank conflicts counted on the emulator, and
predicted bytes from DRAM over the least that must move.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import disassemble
from gensor_kernels.build.sass import GLOBAL_ACCESSES
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.attention import attention
from gensor_kernels.operators.declaration.prologue import with_prologue
from gensor_kernels.operators.products import gated, matmul, quantised, ragged
from gensor_kernels.operators.products.normed import normed
from gensor_kernels.operators.rows.views import workload as rows
from gensor_kernels.operators.types.workload import Workload, contiguous
from gensor_kernels.operators.windows import conv, depthwise, pooling
from gensor_kernels.programs.space import Space
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.verify import verify

ARCHS = ("sm_75", "sm_87", "sm_90")
TABLE = Path(__file__).resolve().parent.parent / "docs" / "static-figures.md"
_IMAGE = {"n": 16, "h": 56, "w": 56, "c": 64, "pad_top": 1, "pad_bottom": 1, "pad_left": 1, "pad_right": 1}
_WINDOW = {**_IMAGE, "r": 3, "s": 3}
_DOUBLED = {"h": 28, "w": 28, "c": 128, "r": 4, "s": 4, "stride_h": 2, "stride_w": 2}
_STEM = {"n": 16, "h": 224, "w": 224, "c": 3, "r": 7, "s": 7, "stride_h": 2, "stride_w": 2} | dict.fromkeys(
    ("pad_top", "pad_bottom", "pad_left", "pad_right"), 3
)

#: Aligned workloads by name: every family, its main types and layouts.
SAMPLE: dict[str, Workload] = {
    "matmul fp16": matmul.workload(2048, 2048, 2048, dtype="float16"),
    "matmul int8 nt": matmul.workload(2048, 2048, 2048, dtype="int8", trans_b=True),
    "matmul int8": matmul.workload(2048, 2048, 2048, dtype="int8"),
    "matmul fp8 nt": matmul.workload(2048, 2048, 2048, dtype="float8_e4m3fn", out="float16", trans_b=True),
    "linear int8": quantised.workload(16, 4096, 4096, bits=8),
    "linear int4": quantised.workload(16, 4096, 4096, bits=4, group=128),
    "linear int8, 2048 rows": quantised.workload(2048, 2048, 2048, bits=8),
    "gelu, matmul fp16": with_prologue(matmul.workload(2048, 2048, 2048, dtype="float16"), ("gelu",), ()),
    "mul, matmul fp16": with_prologue(
        matmul.workload(2048, 2048, 2048, dtype="float16"), ("mul",), (contiguous((2048,), "float16"),)
    ),
    "matmul fp32": matmul.workload(2048, 2048, 2048, dtype="float32"),
    "matmul fp64": matmul.workload(2048, 2048, 2048, dtype="float64"),
    "matmul fp64, slices": matmul.workload(2048, 2048, 2048, dtype="float64", math="ozaki"),
    "matmul complex64": matmul.workload(1024, 1024, 1024, dtype="complex64"),
    "swiglu fp16": gated.workload("swiglu", 2048, 2048, 2048),
    "ragged_matmul fp16": ragged.workload(8, 2048, 2048, 2048),
    "matmul_layernorm fp16": normed("layernorm", matmul.workload(4096, 256, 1024, dtype="float16"), 0),
    "gemv fp16 nt": matmul.workload(1, 4096, 4096, dtype="float16", trans_b=True),
    "gemv fp32": matmul.workload(1, 4096, 4096, dtype="float32"),
    "conv2d fp16 nhwc": conv.workload(**_WINDOW, k_out=64, dtype="float16"),
    "conv2d fp16 nchw": conv.workload(**_WINDOW, k_out=128, dtype="float16", layout="nchw"),
    "conv2d int8 nchw": conv.workload(
        **_WINDOW | {"n": 1, "h": 14, "w": 14, "c": 512}, k_out=512, dtype="int8", layout="nchw"
    ),
    "conv2d fp16 stem": conv.workload(**_STEM, k_out=64, dtype="float16"),
    "conv2d fp32 nchw": conv.workload(**_WINDOW, k_out=64, dtype="float32", layout="nchw"),
    "conv2d_transpose fp16 nhwc": conv.workload(**_WINDOW | _DOUBLED, k_out=64, dtype="float16", transposed=True),
    "conv2d_transpose fp32 nhwc": conv.workload(**_WINDOW | _DOUBLED, k_out=64, dtype="float32", transposed=True),
    "depthwise fp16 nhwc": depthwise.workload(**_WINDOW, dtype="float16"),
    "max_pool2d fp32 nchw": pooling.workload("max_pool2d", **_WINDOW, dtype="float32", layout="nchw"),
    "reduce_sum fp32": rows("reduce_sum", (65536, 1024), (1,), "float32"),
    "softmax fp16": rows("softmax", (4096, 1024), (1,), "float16"),
    "layernorm fp16": rows("layernorm", (4096, 1024), (1,), "float16", epilogue="mul_bias"),
    "attention fp16": attention.workload(1024, heads=12, head=64, causal=True),
    "attention fp16, decoding": attention.workload(1, 4096, batch=4, heads=32, kv_heads=8, head=128),
}


@dataclass(frozen=True)
class Figures:
    """One row of the table."""

    workload: str
    arch: str
    family: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    widths: str
    hot_loop: int
    conflicts: int
    traffic: float

    def line(self) -> str:
        """Return the row as Markdown."""
        cells = (
            *(self.workload, self.arch, f"`{self.family}`", self.registers, self.spill_bytes, self.shared_bytes),
            *(self.widths, self.hot_loop or "", self.conflicts, f"{self.traffic:.2f}"),
        )
        return "| " + " | ".join(map(str, cells)) + " |"


def figures(name: str, workload: Workload, arch_name: str) -> Figures | None:
    """Return the row of the best default Program of a workload on an arch; None where no family serves it there."""
    arch = lookup(arch_name)
    try:
        spaces = Space(workload, arch).families
    except UnsupportedError:
        return None
    found = []
    for space in spaces:
        for program in space.family.starters(workload, arch):
            point = space.point(program)
            found.append((float(space.potential(point[None])[0]), space, program, point))
    _, space, program, point = min(found, key=lambda each: each[0])
    chosen = candidate(space.family, program, workload)
    binary = compile_cubin(chosen.source(), arch.target)
    if binary.error is not None:
        raise RuntimeError(f"{name} on {arch_name}: {binary.error}")
    entry = binary.entries[chosen.entry]
    sass = disassemble(binary.cubin, binary.target)
    code = None if sass is None else sass[chosen.entry]
    verdict = verify(chosen, workload)
    if verdict.outcome != "ok":
        raise RuntimeError(f"{name} on {arch_name}: {verdict.outcome}: {verdict.detail}")
    terms = space.explain(point)
    return Figures(
        workload=name,
        arch=arch_name,
        family=chosen.entry,
        registers=entry.registers,
        spill_bytes=entry.spill_bytes,
        shared_bytes=max(each.shared_bytes for each in space.family.launches(program, workload)),
        widths="" if code is None else ", ".join(f"{n} x {b}" for b, n in code.widths(GLOBAL_ACCESSES).items()),
        hot_loop=0 if code is None else sum(code.hot_loop.values()),
        conflicts=verdict.counters["bank_conflicts"],
        traffic=(terms["dram_bytes"] + terms["epilogue_bytes"]) / workload.bytes_moved(),
    )


HEAD = """# Static figures

For anyone who changes a kernel: the compiler's and the emulator's figures of each family's best default Program.

Written by `python -m benchmarks.static_figures`, for each workload and arch, for the best default Program by the
potential (the start of a class before it is tuned). *Accesses* are global loads, stores and copies in the code, as
count x bytes per thread; *hot loop* the instructions of the main loop as often as the compiler unrolled it; *conflicts*
the shared-memory passes beyond the first, counted on the emulator over all verification cases; *traffic* the predicted
bytes from and to DRAM of the main launch over the minimum.

| workload | arch | family | registers | spill bytes | shared bytes | accesses | hot loop | conflicts | traffic |
| --- | --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |
"""


def table(archs: Sequence[str]) -> Iterator[Figures]:
    """Yield every row of the table."""
    for name, workload in SAMPLE.items():
        for arch in archs:
            row = figures(name, workload, arch)
            if row is not None:
                yield row


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.static_figures", description=__doc__.splitlines()[0])
    made.add_argument("--arch", nargs="+", default=ARCHS, help="compute capabilities or parts")
    made.add_argument("--out", type=Path, default=TABLE, help="the Markdown file to write")
    options = made.parse_args(arguments)
    lines = []
    for row in table(options.arch):
        print(row.line(), file=sys.stderr)
        lines.append(row.line())
    options.out.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
