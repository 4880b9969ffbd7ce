"""Bugs planted in the inline PTX of the kernels: swapped operands, other types, other constants, missing instructions.

Each is an edit of one string of the device code, and the small Program in whose PTX it must be seen: a result out of
its bounds, or a fault. The emulator cannot see any of them: it does not read these strings.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from gensor_kernels.build.source import bind, flatten
from gensor_kernels.machine.arch import lookup
from tests.mutator.programs import Configuration, configurations
from tests.ptx.agreement import Agreement, agree

#: outcomes that catch a bug; PTX that is no longer understood would prove nothing
CAUGHT = ("wrong", "fault")

WIDE = "simt: wide, uneven"


@dataclass(frozen=True)
class Bug:
    """An edit: the text, which occurs once in the source, what stands in its place, and the name of the Program."""

    before: str
    after: str
    program: str

    @property
    def name(self) -> str:
        """The edit in one line."""
        return f"{self.before} -> {self.after} in {self.program}"


def _loads() -> Iterator[Bug]:
    yield Bug(
        "@p ld.global.nc.L2::128B.v4.u32 {%0, %1, %2, %3}", "@p ld.global.nc.L2::128B.v4.u32 {%1, %0, %2, %3}", WIDE
    )
    yield Bug("@p ld.global.nc.L2::128B.v4.u32 {", "ld.global.nc.L2::128B.v4.u32 {", WIDE)
    yield Bug(
        "@p ld.global.nc.L2::128B.v2.u32 {%0, %1}", "@p ld.global.nc.L2::128B.v2.u32 {%1, %0}", "mma cp.async: doubles"
    )
    yield Bug("@p ld.global.nc.L2::128B.u32 %0, [%1]", "@p ld.global.nc.u16 %0, [%1]", "simt: scalar")
    yield Bug("@p ld.global.nc.L2::128B.u32 %0, [%1]", "@p ld.global.nc.L2::128B.u32 %0, [%1+4]", "simt: scalar")
    yield Bug("@p ld.global.nc.L2::128B.u32 %0", "@!p ld.global.nc.L2::128B.u32 %0", "window: planes")
    yield Bug("@p ld.global.nc.u16 %0", "@p ld.global.nc.u8 %0", "mma registers: scalar")
    yield Bug("@p ld.global.nc.u16 %0", "@!p ld.global.nc.u16 %0", "mma registers: scalar")
    yield Bug("@p ld.global.nc.u8 %0, [%1]", "@p ld.global.nc.u8 %0, [%1+1]", "window: channels, one by one")
    yield Bug("@p ld.global.cg.v4.u32 {%0, %1, %2, %3}", "@p ld.global.cg.v4.u32 {%0, %1, %3, %2}", "simt: wide, split")
    yield Bug("@p ld.global.cg.v2.u32 {%0, %1}", "@p ld.global.cg.v2.u32 {%1, %0}", "gemv: rows, split")
    yield Bug("@p ld.global.cg.u32 %0, [%1]", "@p ld.global.cg.u16 %0, [%1]", "rows: columns, split")
    yield Bug('"ld.global.v4.u32 {%0, %1, %2, %3}', '"ld.global.v4.u32 {%3, %1, %2, %0}', "mma cp.async: stream")
    yield Bug("ld.acquire.gpu.global.u64 %0, [%1]", "ld.acquire.gpu.global.u64 %0, [%1+8]", "simt: stream")


def _stores() -> Iterator[Bug]:
    yield Bug("@p st.global.v4.u32 [%4], {%0, %1, %2, %3}", "@p st.global.v4.u32 [%4], {%0, %1, %3, %2}", WIDE)
    yield Bug("@p st.global.v4.u32 [%4]", "st.global.v4.u32 [%4]", "mma cp.async: wide")
    yield Bug("@p st.global.v2.u32 [%2], {%0, %1}", "@p st.global.v2.u32 [%2], {%1, %0}", "mma cp.async: doubles")
    yield Bug("@p st.global.u32 [%1], %0", "@p st.global.u16 [%1], %0", "simt: scalar")
    yield Bug("@p st.global.u32 [%1], %0", "st.global.u32 [%1], %0", "window: planes")
    yield Bug("@p st.global.u16 [%1], %0", "@p st.global.u8 [%1], %0", "mma registers: scalar")
    yield Bug("@p st.global.u8 [%1], %0", "@p st.global.u8 [%1+1], %0", "window: channels, one by one")
    yield Bug("st.release.gpu.global.u64 [%0]", "st.release.gpu.global.u64 [%0+8]", "simt: stream")


def _shared() -> Iterator[Bug]:
    yield Bug("ld.shared.v2.b64 {%0, %1}", "ld.shared.v2.b64 {%1, %0}", "simt: complex, split")
    yield Bug("ld.shared.v4.u32 {%0, %1, %2, %3}", "ld.shared.v4.u32 {%0, %2, %1, %3}", WIDE)
    yield Bug("ld.shared.v2.u32 {%0, %1}", "ld.shared.v2.u32 {%1, %0}", "simt: scalar")
    yield Bug("ld.shared.u32 %0", "ld.shared.u16 %0", "mma cp.async: scalar")
    yield Bug("st.shared.v2.b64 [%2], {%0, %1}", "st.shared.v2.b64 [%2], {%1, %0}", "simt: complex, split")
    yield Bug(
        "st.shared.v4.u32 [%4], {%0, %1, %2, %3}", "st.shared.v4.u32 [%4], {%0, %1, %2, %2}", "mma registers: wide"
    )
    yield Bug("st.shared.v2.u32 [%2], {%0, %1}", "st.shared.v2.u32 [%2], {%1, %0}", "mma cp.async: wide")
    yield Bug("st.shared.u32 [%1], %0", "st.shared.u16 [%1], %0", "simt: scalar")
    yield Bug("st.shared.u16 [%1], %0", "st.shared.u8 [%1], %0", "mma registers: scalar")


def _copies() -> Iterator[Bug]:
    yield Bug("[%0], [%1], 16, %2;", "[%0], [%1], 16;", "mma cp.async: wide")
    yield Bug(
        "cp.async.ca.shared.global.L2::128B [%0], [%1]",
        "cp.async.ca.shared.global.L2::128B [%0], [%1+4]",
        "mma cp.async: scalar",
    )
    yield Bug(
        "cp.async.cg.shared.global.L2::128B [%0], [%1]",
        "cp.async.cg.shared.global.L2::128B [%0], [%1+16]",
        "mma cp.async: wide",
    )
    yield Bug("[%0], [%1], %2, %3;", "[%0], [%1], %2;", "mma cp.async: scalar")
    yield Bug("cp.async.commit_group;", "", "mma cp.async: wide")
    yield Bug('wait_group %0;" ::"n"(N)', 'wait_group %0;" ::"n"(N + 1)', "mma cp.async: wide")
    yield Bug("cp.async.wait_group %0;", "", "attention cp.async: wide")


def _matrices() -> Iterator[Bug]:
    yield Bug('shape ".trans.shared.b16 "', 'shape ".shared.b16 "', "mma cp.async: wide")
    yield Bug('shape ".shared.b16 "', 'shape ".trans.shared.b16 "', "mma cp.async: wide")
    yield Bug('"{%0, %1, %2, %3}", "%4"', '"{%0, %2, %1, %3}", "%4"', "mma cp.async: wide")
    yield Bug('"{%0, %1}", "%2"', '"{%1, %0}", "%2"', "mma cp.async: narrow")
    yield Bug(
        'shape ".shared.b16 " registers ", [" operand "]',
        'shape ".shared.b16 " registers ", [" operand "+16]',
        "mma cp.async: int8",
    )


def _products() -> Iterator[Bug]:
    factors = '" {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"  '
    for program in ("mma cp.async: wide", "mma cp.async: floats", "mma cp.async: scalar"):
        yield Bug(factors, factors.replace("%5, %6", "%6, %5"), program)
    yield Bug(factors, factors.replace("%8, %9", "%9, %8"), "attention cp.async: wide")
    yield Bug(factors, factors.replace("{%0, %1, %2, %3};", "{%1, %0, %2, %3};"), "mma cp.async: wide")
    yield Bug('"f32.f16.f16.f32")', '"f32.bf16.bf16.f32")', "mma cp.async: wide")
    yield Bug('"f32.bf16.bf16.f32")', '"f32.f16.f16.f32")', "mma cp.async: floats")
    yield Bug("{%4, %5}, {%6}, {%0, %1, %2, %3}", "{%5, %4}, {%6}, {%0, %1, %2, %3}", "mma registers: wide")
    yield Bug("m16n8k32.row.col.s32.s8.s8.s32", "m16n8k32.row.col.s32.u8.s8.s32", "mma cp.async: int8")
    yield Bug("m16n8k32.row.col.s32.s8.s8.s32", "m16n8k32.row.col.s32.s8.u8.s32", "sliced: slices")
    yield Bug(
        "m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}",
        "m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%3}, {%2}",
        "mma registers: int8",
    )
    yield Bug("f64.f64.f64.f64 {%0, %1}, {%2}", "f64.f64.f64.f64 {%1, %0}, {%2}", "mma cp.async: doubles")


def _arithmetic() -> Iterator[Bug]:
    yield Bug("max.NaN.f32 %0, %1, %2", "min.NaN.f32 %0, %1, %2", "window: planes, any")
    yield Bug("ex2.approx.ftz.f32 %0", "lg2.approx.ftz.f32 %0", "attention cp.async: wide")
    yield Bug('x2.f32 %0, %1, %2;"', 'x2.f32 %0, %2, %1;"', "attention cp.async: wide")
    yield Bug("fma.rn.f16x2 %0, %1, %2, %3", "fma.rn.f16x2 %0, %1, %3, %2", "mma cp.async: quantised")
    yield Bug("prmt.b32 %0, %1, %2, %3", "prmt.b32 %0, %2, %1, %3", "mma cp.async: quantised")


def _warpgroups() -> Iterator[Bug]:
    narrow, wide, brains = "wgmma: k-contiguous", "wgmma: n-contiguous", "wgmma: m-contiguous, split"
    small = "wgmma: 8-bit floats"
    parts = "floats_wgmma: parts, split"
    yield Bug("tile.address >> 4 & 0x3fff", "tile.address >> 3 & 0x3fff", narrow)
    yield Bug("(u64)(stride >> 4) << 32", "(u64)(stride >> 3) << 32", narrow)
    yield Bug("(u64)(leading >> 4) << 16", "(u64)(leading >> 4) << 14", wide)
    yield Bug(
        "(u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32",
        "(u64)(stride >> 4) << 16 | (u64)(leading >> 4) << 32",
        wide,
    )
    for mode in (0, 2, 3):
        yield Bug("(u64)1 << 62", f"(u64){mode} << 62", narrow)
    yield Bug("(u64)1 << 62", "(u64)1 << 61", narrow)
    yield Bug('"%8, %9, %10"', '"%9, %8, %10"', narrow)
    yield Bug('"%64, %65, %66"', '"%64, %64, %66"', wide)
    yield Bug('"%67, %68"', '"%68, %67"', wide)
    yield Bug('"%32, %33, %34", "%35, %36"', '"%33, %32, %34", "%35, %36"', brains)
    yield Bug('#define WGMMA_NAMES_16 "%0, %1,', '#define WGMMA_NAMES_16 "%1, %0,', narrow)
    yield Bug('", %8, %9, %10, %11,', '", %8, %10, %9, %11,', brains)
    yield Bug('"k16.f32.f16.f16"', '"k16.f32.bf16.bf16"', narrow)
    yield Bug('"k16.f32.bf16.bf16"', '"k16.f32.f16.f16"', brains)
    yield Bug('"e4m3.e5m2"', '"e5m2.e5m2"', small)
    yield Bug('"e4m3.e5m2"', '"e4m3.e4m3"', small)
    halves = '"k16.f32.f16.f16", operands, ", 1, 1, "'
    yield Bug(halves, halves.replace("1, 1", "-1, 1"), narrow)
    yield Bug(halves, halves.replace("1, 1", "1, -1"), wide)
    yield Bug('"k32.f32." types, operands, ", 1, 1"', '"k32.f32." types, operands, ", 1, -1"', small)
    yield Bug('"n"(KEPT), "n"(A_TRANSPOSED)', '"n"(1), "n"(A_TRANSPOSED)', parts)
    yield Bug('"n"(KEPT), "n"(A_TRANSPOSED)', '"n"(0), "n"(A_TRANSPOSED)', narrow)
    yield Bug('"n"(A_TRANSPOSED), "n"(B_TRANSPOSED)', '"n"(A_TRANSPOSED), "n"(A_TRANSPOSED)', wide)
    yield Bug('"n"(A_TRANSPOSED), "n"(B_TRANSPOSED)', '"n"(0), "n"(B_TRANSPOSED)', brains)
    for program in (narrow, parts):
        yield Bug('"wgmma.fence.sync.aligned;"', '""', program)
        yield Bug('"wgmma.commit_group.sync.aligned;"', '""', program)
        yield Bug(
            '"wgmma.wait_group.sync.aligned %0;" ::"n"(N)', '"wgmma.wait_group.sync.aligned %0;" ::"n"(N + 1)', program
        )
    yield Bug('"wgmma.wait_group.sync.aligned %0;" ::"n"(N)', '"" ::"n"(N)', small)


BUGS = [*_loads(), *_stores(), *_shared(), *_copies(), *_matrices(), *_products(), *_arithmetic(), *_warpgroups()]


def program_of(bug: Bug) -> Configuration:
    """Return the Program in which a bug must be seen."""
    return next(each for each in configurations() if f"{each.group}: {each.name}" == bug.program)


def with_bug(bug: Bug) -> Agreement:
    """Return what executing a Program's PTX says with a bug planted."""
    program = program_of(bug)
    text = flatten(program.candidate.family.source)
    assert text.count(bug.before) == 1, f"{bug.before} occurs {text.count(bug.before)} times"
    source = bind(text.replace(bug.before, bug.after), json.loads(program.candidate.constants))
    return agree(program.candidate, program.workload, lookup(program.arch).target, source=source, emulated=False)
