"""Bugs planted in the inline PTX of the kernels: swapped operands, other types, other constants, missing instructions.

Each is an edit of one string of the device code, and the small Program in whose PTX it must be seen: a result out of
its bounds, or a fault. The emulator cannot see any of them: it does not read these strings.
"""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass

from gensor_kernels.families.core.source import bind
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
    read, part = 'ld.global" READ_ONLY ".', 'ld.global" READ_ONLY_PART ".'
    yield Bug(f"@p {read}v4.u32 {{%0, %1, %2, %3}}", f"@p {read}v4.u32 {{%1, %0, %2, %3}}", WIDE)
    yield Bug(f"@p {read}v4.u32 {{", f"{read}v4.u32 {{", WIDE)
    yield Bug(f"@p {read}v2.u32 {{%0, %1}}", f"@p {read}v2.u32 {{%1, %0}}", "mma cp.async: doubles")
    yield Bug(f"@p {read}u32 %0, [%1]", "@p ld.global.nc.u16 %0, [%1]", "simt: scalar")
    yield Bug(f"@p {read}u32 %0, [%1]", f"@p {read}u32 %0, [%1+4]", "simt: scalar")
    yield Bug(f"@p {read}u32 %0", f"@!p {read}u32 %0", "window: planes")
    yield Bug(f"@p {part}u16 %0", f"@p {part}u8 %0", "mma registers: scalar")
    yield Bug(f"@p {part}u16 %0", f"@!p {part}u16 %0", "mma registers: scalar")
    yield Bug(f"@p {part}u8 %0, [%1]", f"@p {part}u8 %0, [%1+1]", "window: channels, one by one")
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
    yield Bug("[%0], [%1], 16, size;", "[%0], [%1], 16;", "mma cp.async: wide")
    yield Bug("selp.u32 size, 16, 0, p", "selp.u32 size, 0, 16, p", "mma cp.async: wide")
    yield Bug("selp.u32 size, %2, 0, p", "selp.u32 size, 0, %2, p", "mma cp.async: scalar")
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
    yield Bug("[%0], [%1], %2, size;", "[%0], [%1], %2;", "mma cp.async: scalar")
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
    for wrong in ("e5m2.e5m2", "e4m3.e4m3", "e5m2.e4m3"):
        yield Bug('"f32.e4m3.e5m2.f32")', f'"f32.{wrong}.f32")', "mma cp.async: 8-bit floats")
    product = "f32.f16.f16.f32 {%0, %1, %2, %3}, "
    yield Bug(f"{product}{{%4, %5}}, {{%6}}", f"{product}{{%5, %4}}, {{%6}}", "mma registers: wide")
    yield Bug("m16n8k32.row.col.s32.s8.s8.s32", "m16n8k32.row.col.s32.u8.s8.s32", "mma cp.async: int8")
    yield Bug("m16n8k32.row.col.s32.s8.s8.s32", "m16n8k32.row.col.s32.s8.u8.s32", "sliced: slices")
    yield Bug(
        "m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}",
        "m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%3}, {%2}",
        "mma registers: int8",
    )
    yield Bug("f64.f64.f64.f64 {%0, %1}, {%2}", "f64.f64.f64.f64 {%1, %0}, {%2}", "mma cp.async: doubles")


def _scaled() -> Iterator[Bug]:
    each = {kind: f"blocks: scaled {kind}" for kind in ("nvfp4", "mxfp4", "mxfp8")}
    places = "%10, {%11, %12}, %13, {%11, %14}"
    yield Bug(places, "%10, {%12, %11}, %13, {%11, %14}", each["mxfp4"])
    yield Bug(places, "%10, {%11, %12}, %13, {%14, %11}", each["mxfp8"])
    yield Bug(places, "%13, {%11, %12}, %10, {%11, %14}", each["nvfp4"])
    yield Bug("4X.f32.e2m1.e2m1.f32.ue4m3", "2X.f32.e2m1.e2m1.f32.ue8m0", each["nvfp4"])
    yield Bug("2X.f32.e2m1.e2m1.f32.ue8m0", "4X.f32.e2m1.e2m1.f32.ue4m3", each["mxfp4"])
    yield Bug('BYTES("f32.e5m2.e5m2.f32")', 'BYTES("f32.e5m2.e4m3.f32")', each["mxfp8"])
    for wrong in ("e5m2.e5m2", "e4m3.e4m3"):
        yield Bug('"m16n8k32", "f32.e4m3.e5m2.f32")', f'"m16n8k32", "f32.{wrong}.f32")', "blocks: floats")
        yield Bug('BYTES("f32.e4m3.e5m2.f32")', f'BYTES("f32.{wrong}.f32")', "blocks: floats of one row of fragments")


def _arithmetic() -> Iterator[Bug]:
    yield Bug("max.NaN.f32 %0, %1, %2", "min.NaN.f32 %0, %1, %2", "window: planes, any")
    yield Bug("ex2.approx.ftz.f32 %0", "lg2.approx.ftz.f32 %0", "attention cp.async: wide")
    yield Bug("cvt.rn.f16x2.f32 %0, %1, %2;", "cvt.rn.f16x2.f32 %0, %2, %1;", "attention cp.async: wide")
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
    yield Bug('"+f", "k16.f32.f16.f16"', '"+f", "k16.f32.bf16.bf16"', narrow)
    yield Bug('"+f", "k16.f32.bf16.bf16"', '"+f", "k16.f32.f16.f16"', brains)
    yield Bug('"e4m3.e5m2"', '"e5m2.e5m2"', small)
    yield Bug('"e4m3.e5m2"', '"e4m3.e4m3"', small)
    halves = '"+f", "k16.f32.f16.f16", operands, ", 1, 1, "'
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
    overlapped = "wgmma: 8-bit floats, overlapped"
    yield Bug("end<1>(ROUND_TILES - 1);", "end<2>(ROUND_TILES - 1);", overlapped)
    yield Bug("release(buffer);", "release(slot);", "wgmma: scales of blocks, overlapped")
    yield Bug("end<0>(0);\n        }", "}", overlapped)
    yield Bug("j % 2 ? 0x7632 : 0x5410", "j % 2 ? 0x5410 : 0x7632", "aligned: turned, 16 bytes")
    waits = "mbarrier_wait(full(turn.slot), turn.parity);"
    yield Bug(waits, "", narrow)
    yield Bug(waits, f"if ((thread_index() & 31) == 0) {waits}", narrow)
    yield Bug(waits, f"if (thread_index() / 32 % 4 == 0) {waits}", narrow)


def _leaders() -> Iterator[Bug]:
    narrow, stored, groups = "wgmma: k-contiguous", "wgmma: stored by copies", "wgmma: two warpgroups"
    elect = "elect.sync _|p, 0xffffffff;"
    for other in ("setp.ne.u32 p, 0, 0;", "setp.eq.u32 p, 0, 0;", elect.replace("0xffffffff", "0x0000ffff")):
        yield Bug(elect, other, narrow)
    yield Bug("selp.b32 %0, 1, 0, p;", "selp.b32 %0, 0, 1, p;", stored)
    matrix = "[%0], {%1, %2, %3, %4};"
    for right, wrong in (("%1, %2", "%2, %1"), ("%3, %4", "%4, %3"), ("[%0]", "[%0+16]")):
        yield Bug(matrix, matrix.replace(right, wrong), stored)
    yield Bug("stmatrix.sync.aligned.m8n8.x4.shared", "stmatrix.sync.aligned.m8n8.x4.trans.shared", stored)
    yield Bug("__shfl_sync(0xffffffffu, value, 0)", "__shfl_sync(0xffffffffu, value + 1, 0)", groups)


def _mbarriers() -> Iterator[Bug]:
    narrow, pair, stored = "wgmma: k-contiguous", "wgmma: pair along m", "wgmma: stored by copies"
    init = '[%0], %1;" ::"r"(barrier.address), "r"(arrivals)'
    yield Bug(init, init.replace("arrivals", "arrivals + 1"), narrow)
    yield Bug("mbarrier.init.shared::cta.b64 [%0], %1;", "mbarrier.init.shared::cta.b64 [%0], 0;", narrow)
    yield Bug("fence.mbarrier_init.release.cluster;\\n  fence.proxy.async.shared::cta;", "", narrow)
    yield Bug("fence.mbarrier_init.release.cluster;\\n", "", pair)
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%0];"
    for other in ("", arrive.replace("[%0]", "[%0+8]"), arrive.replace("[%0]", "[%0], 2")):
        yield Bug(arrive, other, narrow)
    expect = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
    yield Bug(expect, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;", narrow)
    yield Bug(expect, arrive, narrow)
    for amount in ("bytes / 2", "bytes + 16", "bytes - 128", "bytes << 8"):
        yield Bug('"r"(barrier.address), "r"(bytes)', f'"r"(barrier.address), "r"({amount})', stored)
    yield Bug('"r"(barrier.address), "r"(parity)', '"r"(barrier.address), "r"(parity ^ 1)', narrow)
    yield Bug("shared::cta.b64 p, [%1], %2;", "shared::cta.b64 p, [%1+8], %2;", narrow)
    yield Bug("shared::cta.b64 p, [%1], %2;", "shared::cta.b64 p, [%1], 2;", narrow)
    yield Bug('selp.u32 %0, 1, 0, p; }"', 'selp.u32 %0, 1, 1, p; }"', narrow)


def _tensor_copies() -> Iterator[Bug]:
    narrow, stored, pixels = "wgmma: k-contiguous", "wgmma: stored by copies", "wgmma: pixels"
    tile = '" [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"'
    for right, wrong in (("%3, %4", "%4, %3"), ("%4, %5", "%5, %4"), ("[%0]", "[%0+128]"), ("[%0]", "[%0+16]")):
        yield Bug(tile, tile.replace(right, wrong), narrow)
    for right, wrong in (("[%2]", "[%2+8]"), ("[%1,", "[%1+128,"), ("[%1,", "[%1+32,"), ("%3, %4", "%3, %3")):
        yield Bug(tile, tile.replace(right, wrong), narrow)
    image = '" [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"'
    for right, wrong in (("{%7, %8}", "{%8, %7}"), ("{%7, %8}", "{%7, 0}"), ("%4, %5", "%5, %4"), ("%5, %6", "%6, %5")):
        yield Bug(image, image.replace(right, wrong), pixels)
    out = "{%2, %3, %4, %5, %6}], [%1];"
    for right, wrong in (("%2, %3", "%3, %2"), ("[%1]", "[%1+128]"), ("[%1]", "[%1+64]"), ("%3, %4", "%4, %3")):
        yield Bug(out, out.replace(right, wrong), stored)
    yield Bug("[%0, {%2, %3, %4, %5, %6}]", "[%0+-128, {%2, %3, %4, %5, %6}]", stored)
    yield Bug("cp.async.bulk.commit_group;", "", stored)
    rest = "wgmma: stored by copies, a rest"
    yield Bug("(chunk ^ of_eight) * 16", "chunk * 16", rest)
    yield Bug("store_tensor_commit(); // a group", "{} // a group", rest)
    yield Bug('WGMMA_NAMES_64 ", %32, %33, %34, %35"', 'WGMMA_NAMES_64 ", %33, %32, %34, %35"', rest)
    yield Bug('wait_group.read %0;" ::"n"(N)', 'wait_group.read %0;" ::"n"(N + 1)', stored)
    yield Bug('"cp.async.bulk.wait_group.read %0;" ::"n"(N)', '"" ::"n"(N)', stored)
    yield Bug('asm volatile("fence.proxy.async.shared::cta;"', 'asm volatile(""', stored)
    yield Bug('asm volatile("fence.proxy.async.shared::cta;"', 'asm volatile("fence.acq_rel.cta;"', stored)


def _clusters() -> Iterator[Bug]:
    pair, pixels = "wgmma: pair along m", "wgmma: pixels of pairs"
    yield Bug("mapa.shared::cluster.u32 there, %0, %1;", "mapa.shared::cluster.u32 there, %0, 0;", pair)
    yield Bug("mapa.shared::cluster.u32 there, %0, %1;", "add.u32 there, %0, 0;", pair)
    yield Bug("_, [there]; }", "_, [there+8]; }", pair)
    yield Bug("mbarrier.arrive.shared::cluster.b64 _, [there]; }", "}", pair)
    yield Bug("barrier.cluster.arrive.release;\\n  barrier.cluster.wait.acquire;", "", pair)
    begin = "barrier.cluster.arrive.relaxed.aligned;\\n  barrier.cluster.wait.acquire.aligned;"
    for other in ("", begin.partition("\\n")[0], begin.partition("\\n  ")[2]):
        yield Bug(begin, other, pair)
    yield Bug('"prefetch.tensormap [%0];" ::"l"(&map)', '"prefetch.tensormap [%0+32];" ::"l"(&map)', pair)
    yield Bug("\\n  barrier.cluster.wait.acquire;", "", pair)
    yield Bug("barrier.cluster.arrive.release;\\n", "", pair)
    leave = "if constexpr (CLUSTER && PERSISTENT)\n        cluster_barrier();"
    yield Bug(leave, "", "wgmma: pair along n, walking")
    shared = '" [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;"'
    for right, wrong in (("%8;", "1;"), ("%8;", "7;"), ("%3, %4", "%4, %3"), ("[%0]", "[%0+1024]")):
        yield Bug(shared, shared.replace(right, wrong), pair)
    image = '{%3, %4, %5, %6}], [%2], {%7, %8}, %9;"'
    for right, wrong in (("{%7, %8}", "{%8, %7}"), ("%9", "2"), ("[%2]", "[%2+8]")):
        yield Bug(image, image.replace(right, wrong), pixels)


def _registers_and_launches() -> Iterator[Bug]:
    groups, dependent = "wgmma: two warpgroups", "aligned: turned"
    give, take = (f'setmaxnreg.{each}.sync.aligned.u32 %0;" ::"n"(TO)' for each in ("dec", "inc"))
    for other in ("TO + 4", "TO - 24", "TO + 64"):
        yield Bug(give, give.replace("TO", other), groups)
    yield Bug(give, give.replace("dec", "inc"), groups)
    yield Bug(give, '" ::"n"(TO)', groups)
    for other in ("TO + 8", "TO - 128"):
        yield Bug(take, take.replace("TO", other), groups)
    yield Bug("griddepcontrol.wait;", "", dependent)
    yield Bug("griddepcontrol.wait;", "griddepcontrol.launch_dependents;", dependent)


def _attention() -> Iterator[Bug]:
    two, three, split = (f"attention_wgmma: {name}" for name in ("two warpgroups", "three warpgroups", "split"))
    held = '"{%32, %33, %34, %35}, %36, %37", "%38"'
    for right, wrong in (("%33, %34", "%34, %33"), ("%37", "0"), ("%38", "0")):
        yield Bug(held, held.replace(right, wrong), two)
    types = 'WGMMA_HELD(n, half_t, "k16.f32.f16.f16", operands, ", 1, 1, " transposed)'
    for right, wrong in (("1, 1", "1, -1"), ("1, 1", "-1, 1"), ("f16.f16", "bf16.bf16")):
        yield Bug(types, types.replace(right, wrong), two)
    # Buffers and registers that are used before they are there, or given back while they are used.
    scores, sums = "    math.end_scores();\n    release(keys);", "    math.end_sums();\n    release(values);"
    for wait in (scores, sums):
        first, second = wait.split("\n")
        yield Bug(wait, f"{second}\n{first}", two)
    yield Bug("release(keys);", "", split)
    yield Bug("release(values);", "", three)
    yield Bug("mbarrier_wait(queries_full(), 0);", "", two)
    yield Bug("math.end_sums();\n    release(values);\n    math.take_weights();",
              "math.take_weights();\n    math.end_sums();\n    release(values);", two)  # fmt: skip
    behind = "    turn.next();\n    mbarrier_wait(full(turn.slot), turn.parity);\n    math.begin_sums(turn);"
    yield Bug(behind, behind.replace("    mbarrier_wait(full(turn.slot), turn.parity);\n", ""), two)
    ahead = "    mbarrier_wait(full(turn.slot), turn.parity);\n    math.end_sums();"
    yield Bug(ahead, "    math.end_sums();", two)
    yield Bug("mbarrier_wait(empty(turn.slot), turn.parity ^ 1);", "", split)
    yield Bug(
        "mbarrier_wait(empty(turn.slot), turn.parity ^ 1);", "mbarrier_wait(empty(turn.slot), turn.parity);", split
    )
    for other in ("SLOT_BYTES - 128", "SLOT_BYTES + 128"):
        yield Bug("mbarrier_expect(full(turn.slot), SLOT_BYTES);", f"mbarrier_expect(full(turn.slot), {other});", three)
    yield Bug("BOXES * divide_up(BLOCK_Q, group) * group * 128", "BOXES * BLOCK_Q / group * group * 128", two)
    yield Bug("mbarrier_init(empty(slot), 4 * CONSUMERS);", "mbarrier_init(empty(slot), 4);", two)
    yield Bug("mbarrier_init(turn_of(group), 4);", "mbarrier_init(turn_of(group), 8);", three)
    yield Bug("group + 1 == CONSUMERS ? 0 : group + 1", "group", two)
    # Values of another sequence that are left, or cleared unseen.
    ragged = "attention_wgmma: ragged"
    yield Bug("    proxy_fence();\n", "", ragged)
    yield Bug("keys * PIECES + thread_index()", "(keys + 1) * PIECES + thread_index()", ragged)
    yield Bug("    if (within(1, steps)) // the next tile of keys comes first\n        turn.next();\n", "", ragged)
    # Rows of another tile, sequences that end elsewhere, and heads of other tiles.
    groups, last = "attention_wgmma: ragged groups", "work.row = (work.rows - 1) / each * each - (own.row - first);"
    yield Bug(last, last.replace("(work.rows - 1)", "work.rows"), groups)
    yield Bug("each = rows_of_block(params);", "each = BLOCK_Q;", groups)
    yield Bug("within(row, work.end)};", "within(row, work.rows)};", groups)
    yield Bug("work.entry = (i32)(block % heads);", "work.entry = (i32)(block / heads % heads);", groups)
    # Exponentials by polynomials, and the order of blocks.
    powers = "attention_wgmma: polynomials"
    for before, after in (
        ("SHIFT - shifted)", "-shifted)"),
        ("bit_cast<u32>(shifted) << 23", "bit_cast<u32>(shifted) << 22"),
        ("fma_(power, rest, 0.6931242f)", "fma_(power, rest, 0.5931242f)"),
        ("return __saturatef(__fmaf_rn(a, b, c));", "return __fmaf_rn(a, b, c);"),
        ("place = block - first * tiles", "place = block"),
    ):
        yield Bug(before, after, powers)
    yield Bug("(round & 1) ^ (u32)(group == 0)", "(round & 1)", two)
    yield Bug("    if constexpr (EPILOGUE_STAGED)\n        barrier();", "", two)
    # Positions: of rows, tiles and heads.
    yield Bug("at[1] -= BLOCK_K;", "at[1] += BLOCK_K;", two)
    yield Bug("{0, 0, first_query,", "{0, first_query, 0,", two)
    yield Bug("(QUERIES + group * 64 * 128)", "(QUERIES + group * 32 * 128)", two)
    yield Bug("constexpr int SPARE = 8;", "constexpr int SPARE = 0;", two)
    yield Bug("return WHOLE_QUERIES ? within(row, work.end) : true;", "return true;", two)
    yield Bug("first_values = matrix_descriptor(tile_in(0), TILE_BOX, ATOM);",
              "first_values = matrix_descriptor(tile_in(0), ATOM, ATOM);", three)  # fmt: skip


def _copied_masks() -> Iterator[Bug]:
    mask, pairs, floats = (f"attention_wgmma: copied {name}" for name in ("mask", "pairs", "floats"))
    # Tiles that are read before they are there, or given back while they are read.
    yield Bug("        mbarrier_wait(mask_full(tile), mask_parity(tile));\n", "", pairs)
    yield Bug("    mbarrier_wait(mask_empty(tile), mask_parity(tile) ^ 1);\n", "", pairs)
    yield Bug("mbarrier_init(mask_empty(tile), 4 * CONSUMERS);", "mbarrier_init(mask_empty(tile), 4);", mask)
    given = "        if ((thread_index() & 31) == 0)\n            mbarrier_arrive(mask_empty(tile));"
    yield Bug(f"        warp_barrier();\n{given}", given, mask)
    yield Bug("MASK_BOXES * 128 * rows", "MASK_BOXES * 128 * BLOCK_Q", mask)
    # Places: of boxes, rows, chunks and pairs.
    yield Bug("at[0] += 128 / (int)sizeof(MASK_TYPE);", "at[0] += 64;", floats)
    yield Bug("request_mask(params, work, step, last - step * BLOCK_K);",
              "request_mask(params, work, step, last + step * BLOCK_K);", mask)  # fmt: skip
    yield Bug("mine / group * members", "mine / group", mask)
    yield Bug("(members == 1 ? 0 : mine % group)", "0", pairs)
    yield Bug("BY_MATRIX ? lane & 15 :", "BY_MATRIX ? lane & 7 :", pairs)
    yield Bug("(pair ^ (line & 7) << 4)", "pair", floats)
    yield Bug("lane >> 4 << 4", "0", pairs)
    yield Bug(
        "mask_pair(params, math, j + each / 2, each % 2,", "mask_pair(params, math, j + each % 2, each / 2,", pairs
    )
    yield Bug("a.word[word] ^= swapped, b.word[word] ^= swapped;", "a.word[word] ^= swapped;", floats)
    yield Bug("(int)(odd[half] & 64)", "0", floats)
    yield Bug("j / IN_BOX * MASK_BOX", "j / IN_BOX * 128", floats)


def _hold() -> Iterator[Bug]:
    column, groups, tiles, odd = (
        f"weights_wgmma: {name}"
        for name in ("a scale per column", "groups, split", "two tiles", "single columns, split")
    )
    fours, two = "weights_wgmma: brains of four bits", "weights_wgmma: two warpgroups"
    # Buffers and registers that are used before they are there, or given back while they are used.
    yield Bug("    warp_barrier();\n    if ((thread_index() & 31) == 0)\n        mbarrier_arrive(empty(slot));",
              "    if ((thread_index() & 31) == 0)\n        mbarrier_arrive(empty(slot));", column)  # fmt: skip
    ahead = "                mbarrier_wait(full(turn.slot), turn.parity);\n                widen(turn.slot, 0);"
    yield Bug(ahead, "                widen(turn.slot, 0);", groups)
    yield Bug("wgmma_wait<1>(); // the previous chunk", "wgmma_wait<2>(); // the previous chunk", column)
    yield Bug("if (chunk == 0 && !GROUP && release_previous)", "if (chunk == 0 && !GROUP)", two)
    # Numbers: selectors, large numbers, signs, zeros and scales of other columns or groups.
    yield Bug("byte_permute(stored, 0, 0x4140) ^ 0x64806480u", "byte_permute(stored, 0, 0x4140) ^ 0x64006400u", column)
    yield Bug("byte_permute(stored, 0, 0x4140)", "byte_permute(stored, 0, 0x4041)", two)
    yield Bug("stored * 0x1001u", "stored * 0x101u", groups)
    yield Bug("(HALF ? 1024.0f : 128.0f)", "(HALF ? 1024.0f : 136.0f)", fours)
    yield Bug("0x4440 | i) ^ 0x4b000080u", "0x4440 | i) ^ 0x4b000000u", odd)
    yield Bug("weights.add(sums[i][v], i, v >> 1 & 1, totals", "weights.add(sums[i][v], i, v & 1, totals", tiles)
    yield Bug("scales = scales + scale_group, zeros = zeros + zero_group;", "scales = scales + scale_group;", groups)
    # Places: of lanes in a row of weights, of rows in a tile, and of sums in a slab.
    yield Bug("(lane & 3) * PAIR_BYTES", "(lane & 3) * 4", column)
    yield Bug("(row & 3) * 2 + (row >> 2 & 1)", "(row & 7)", two)
    yield Bug("b_at[0] += 128;", "b_at[0] += 64;", groups)
    # Floats: boxes, rows of k, columns of lanes, and of a slab.
    floats, wide = "weights_wgmma: floats", "weights_wgmma: floats, two tiles"
    yield Bug("b_at[0] -= BLOCK_N, b_at[1] += BLOCK_K;", "b_at[0] -= BLOCK_N, b_at[1] += BLOCK_K / 2;", floats)
    yield Bug("64 / UNIT * i * FLOAT_BOX", "32 / UNIT * i * FLOAT_BOX", wide)
    yield Bug("WeightRows::offset(half * 4 + (lane & 3), column * 4)",
              "WeightRows::offset(half * 4 + (lane & 3), 0) + column * 4", floats)  # fmt: skip
    yield Bug("(lane >> 3 & 1) * 16 + (lane >> 4) * 4;", "(lane >> 3 & 1) * 4 + (lane >> 4) * 16;", floats)
    yield Bug("(of_slab >> 2 & 1) * 16 + (of_slab >> 3) * 4", "(of_slab >> 2 & 1) * 4 + (of_slab >> 3) * 16", wide)
    yield Bug("factors[half * 2] = pair.word[0], factors[half * 2 + 1] = pair.word[1];",
              "factors[half * 2] = pair.word[1], factors[half * 2 + 1] = pair.word[0];", floats)  # fmt: skip


def _clusters_of_pairs() -> Iterator[Bug]:
    along_m, along_n, scaled = (f"tcgen05: pairs along {name}" for name in ("m", "n", "m, mxfp8"))
    for mask in ("3", "to | 3", "to >> 2", "to << 1"):
        yield Bug('"h"((u16)to)', f'"h"((u16)({mask}))', along_m)
    copy = "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    mapped = f'counter, %2, %8;\\n"\n{" " * 17}"  {copy}'
    for first in ("0", "3"):
        yield Bug(f"{mapped}.cta_group::2", f"{mapped}.cta_group::2".replace("%8", first), along_n)
    received = '"r"(at[4]), "r"(first),\n        "h"((u16)blocks)'
    for before, after in (
        (".multicast::cluster.cta_group::2 [%0]", ".multicast::cluster [%0]"),
        ("[counter], %9; }", "[%2], %9; }"),
        (received, received.replace("(first)", "(first | 1)")),
        (received, received.replace("(u16)blocks", "(u16)(blocks << 1)")),
        (received, received.replace("(u16)blocks", "(u16)(blocks & 3)")),
        ("[counter], %9; }", "[counter + 8], %9; }"),
    ):
        yield Bug(before, after, along_m)
    # Nothing else shows that an arrival of the other pair is on its way when a block ends, or that blocks meet.
    yield Bug("        mbarrier_wait(empty(turn.slot), turn.parity ^ 1);\n        turn.next();", "", along_m)
    yield Bug("    meet();\n    if (warp == 1)", "    barrier();\n    if (warp == 1)", along_n)
    arrival = f'there, %0, %1;\\n"\n{" " * 17}"  mbarrier.arrive.release'
    yield Bug(arrival, arrival.replace("%1", "0"), scaled)


def _tensor_memory() -> Iterator[Bug]:
    one, across, both, floats = (
        f"tcgen05: {name}" for name in ("k-contiguous", "n-contiguous", "m-contiguous, split", "rounded floats")
    )
    pair, small, whole = (f"tcgen05: {name}" for name in ("pair", "8-bit floats of a pair", "stored by copies, 8 bits"))
    # Descriptors: of tiles, and of instructions.
    for other in ("", " | (u64)2 << 46", " | (u64)1 << 46 | (u64)1 << 52", " | (u64)1 << 46 | (u64)1 << 53"):
        yield Bug("return descriptor | (u64)1 << 46;", f"return descriptor{other};", one)
    for before, after, program in (
        ("return sums << 4", "return sums << 5", one),
        ("UMMA_CODE<A> << 7", "UMMA_CODE<A> << 8", both),
        ("UMMA_CODE<B> << 10", "UMMA_CODE<A> << 10", small),
        ("(u32)a_across << 15 | (u32)b_across << 16", "(u32)b_across << 15 | (u32)a_across << 16", across),
        ("(u32)a_across << 15", "(u32)a_across << 14", both),
        ("(u32)(columns >> 3) << 17", "(u32)(columns >> 4) << 17", across),
        ("(u32)(columns >> 3) << 17", "(u32)(columns >> 3) << 18", one),
        ("(u32)(rows >> 4) << 24", "(u32)(rows >> 4) << 23", one),
        ("(u32)(rows >> 4) << 24", "(u32)(rows >> 5) << 24", pair),
        ("UMMA_CODE<bfloat16_t> = 1", "UMMA_CODE<bfloat16_t> = 0", both),
        ("UMMA_CODE<float> = 2", "UMMA_CODE<float> = 1", floats),
        ("UMMA_CODE<e5m2_t> = 1", "UMMA_CODE<e5m2_t> = 0", small),
        ("same_type<A, i8> ? 2 : 1", "same_type<A, i8> ? 1 : 1", whole),
    ):
        yield Bug(before, after, program)
    # Columns: too few, another number, not freed, freed twice or too early.
    allocated, freed = '"r"(to.address), "n"(COLUMNS)', '"r"(memory), "n"(COLUMNS)'
    for amount in ("COLUMNS / 2", "COLUMNS * 3 / 2", "COLUMNS * 32"):
        yield Bug(allocated, f'"r"(to.address), "n"({amount})', across)
    yield Bug(allocated, '"r"(to.address + 4), "n"(COLUMNS)', one)
    yield Bug(freed, '"r"(memory), "n"(COLUMNS / 2)', across)
    yield Bug(freed, '"r"(memory + 32), "n"(COLUMNS)', across)
    yield Bug("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;", "", one)
    allocation = ("tensor_alloc<BLOCKS, MEMORY_COLUMNS>(memory_address());", "tensor_alloc_last<BLOCKS>();")
    yield Bug("\n        ".join(allocation), "\n        ".join(allocation[::-1]), pair)
    # Products: operands, kinds, and sums that are kept.
    for right, wrong in (("%1, %2", "%2, %1"), ("[%0]", "[%0+16]"), ("[%0]", "[%0+0x100000]")):
        yield Bug('" [%0], %1, %2, %3, p; }"', '" [%0], %1, %2, %3, p; }"'.replace(right, wrong), across)
    for other in ("setp.eq.u32 p, %4, 0;", "setp.eq.u32 p, 0, 0;", "setp.ne.u32 p, 0, 0;"):
        yield Bug("setp.ne.u32 p, %4, 0;\\n", other + "\\n", one)
    yield Bug('UMMA("f16");', 'UMMA("tf32");', one)
    yield Bug('UMMA("tf32");', 'UMMA("f16");', floats)
    yield Bug('UMMA("i8");', 'UMMA("f8f6f4");', whole)
    yield Bug('UMMA("f8f6f4");', 'UMMA("f16");', small)
    # Commits: missing, to other mbarriers, to one block only.
    for other in ("", "[%0+8];"):
        yield Bug(
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];",
            other and f"tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 {other}",
            one,
        )
    for mask in (1, 2, 7):
        yield Bug('"h"((u16)to)', f'"h"((u16){mask})', pair)
    yield Bug("umma_commit<BLOCKS>(empty(turn.slot), ALL_BLOCKS);", "", one)
    # Loads: registers, lanes, columns, and waits.
    narrow = "{%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
    for right, wrong in (("%0, %1", "%1, %0"), ("%1, %2", "%2, %1"), ("%3, %4", "%4, %3"), ("[%8]", "[%8+8]")):
        yield Bug(narrow, narrow.replace(right, wrong), one)
    yield Bug('%31}, [%32];"', '%31}, [%32+8];"', across)
    yield Bug("own * 32 + half * 16) << 16", "own * 16 + half * 32) << 16", one)
    yield Bug("own * 32 + half * 16) << 16", "own * 32 + half * 8) << 16", one)
    yield Bug("own * 32 + half * 16) << 16", "own * 32 + half * 16) << 15", one)
    yield Bug("own * 32 + half * 16) << 16", "own * 32) << 16", one)
    yield Bug("warp_uniform(thread_index() >> 5 & 3)", "warp_uniform((thread_index() >> 5) + 1 & 3)", one)
    for other in ("", "tcgen05.wait::st.sync.aligned;"):
        yield Bug("tcgen05.wait::ld.sync.aligned;", other, one)
    # Two multiply-adds of floats.
    scaled = "tcgen05: scales of blocks, pair"
    for before, after in (
        ("mov.b64 a, {%2, %3};", "mov.b64 a, {%3, %2};"),
        ("mov.b64 b, {%4, %4};", "mov.b64 b, {%4, %2};"),
        ("fma.rn.f32x2 d, a, b, d;", "fma.rn.f32x2 d, a, d, b;"),
        ("mov.b64 {%0, %1}, d;", "mov.b64 {%1, %0}, d;"),
    ):
        yield Bug(before, after, scaled)
    # Order: fences, waits and arrivals.
    for name, other in (("before", "after"), ("after", "before")):
        yield Bug(f'asm volatile("tcgen05.fence::{name}_thread_sync;"', 'asm volatile(""', one)
        yield Bug(f'asm volatile("tcgen05.fence::{name}_thread_sync;"',
                  f'asm volatile("tcgen05.fence::{other}_thread_sync;"', pair)  # fmt: skip
    # Copies of a pair.
    copy, end = 'tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2"', "[there]; }"
    before = f'{copy}\n{" " * 17}" [%0], [%1, {{%3, %4, %5, %6, %7}}], {end}'
    for right, wrong in (("[there]", "[%2]"), ("[there]", "[there+8]"), (".cta_group::2", ""), ("[%0]", "[%0+128]")):
        yield Bug(before, before.replace(right, wrong), pair)
    there = f'there, %2, 0;\\n"\n{" " * 17}"  cp.async.bulk.{copy}'
    yield Bug(there, there.replace("0;", "1;"), pair)


def _tensor_scales() -> Iterator[Bug]:
    one, words, pair = (f"tcgen05: {name}" for name in ("mxfp8", "nvfp4", "nvfp4 of a pair"))
    # Products: operands, kinds, places of scales.
    product = '" [%0], %1, %2, %3, [%4], [%5], p; }"'
    for right, wrong in (("%1, %2", "%2, %1"), ("[%4], [%5]", "[%5], [%4]"), ("[%4]", "[%4+1]"), ("[%5]", "[%5+4]")):
        yield Bug(product, product.replace(right, wrong), one)
    for other in ("setp.eq.u32 p, %6, 0;", "setp.eq.u32 p, 0, 0;", "setp.ne.u32 p, 0, 0;"):
        yield Bug("setp.ne.u32 p, %6, 0;\\n", other + "\\n", one)
    scaled = 'UMMA_SCALED("mxf4nvf4.block_scale.scale_vec::{}");'
    yield Bug(scaled.format("4X"), scaled.format("2X"), words)
    for before, after, program in (
        ("(u32)b_byte << 4", "(u32)b_byte << 5", one),
        ("(u32)(SCALES < 4) << 23", "(u32)(SCALES < 4) << 22", one),
        ("(u32)(SCALES > 1 || b_e5m2) << 10", "(u32)(SCALES > 1 || b_e5m2) << 11", words),
        (
            "(u32)a_byte << 29 | product_size(rows, columns)",
            "(u32)a_byte << 29 | product_size(rows, 2 * columns)",
            words,
        ),
        ("(u32)a_byte << 29 | product_size(rows, columns)", "(u32)a_byte << 29 | product_size(64, columns)", one),
    ):
        yield Bug(before, after, program)
    # Copies of scales: columns, and rows in shared memory.
    copy = '32x128b.warpx4 [%0], %1;"'
    yield Bug(copy, copy.replace("[%0]", "[%0+1]"), one)
    yield Bug("scales.address >> 4 & 0x3fff", "scales.address >> 4 & 0x7ff", one)
    yield Bug("(u64)(128 >> 4) << 32", "(u64)(256 >> 4) << 32", words)
    # Arrivals and waits of a pair, and its end.
    yield Bug("mbarrier.arrive.release.cluster.shared::cluster", "mbarrier.arrive.shared::cluster", pair)
    yield Bug("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]",
              "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0]", pair)  # fmt: skip
    yield Bug("try_wait.parity.acquire.cluster.", "try_wait.parity.acquire.cta.", pair)
    yield Bug("warp_barrier(); // its lanes", "(void)0; // its lanes", pair)


def _attention_in_tensor_memory() -> Iterator[Bug]:
    two, tiles, boxes, narrow, ragged = (
        f"attention_tcgen05: {name}"
        for name in ("two warpgroups", "two tiles of scores", "two boxes", "narrow", "ragged groups")
    )
    # Products with weights: operands, places, sums that are kept.
    held = "kind::f16 [%0], [%1], %2, %3, p; }"
    for right, wrong in (("[%0], [%1]", "[%1], [%0]"), ("[%1]", "[%1+8]"), ("[%0]", "[%0+16]")):
        yield Bug(held, held.replace(right, wrong), two)
    kept = 'setp.ne.u32 p, %4, 0;\\n"\n'
    for other in ("setp.eq.u32 p, %4, 0;", "setp.eq.u32 p, 0, 0;"):
        yield Bug(kept, kept.replace("setp.ne.u32 p, %4, 0;", other), narrow)
    yield Bug("OF_VALUES, step + i > 0", "OF_VALUES, i > 0", two)
    yield Bug("OF_VALUES, step + i > 0", "OF_VALUES, step > 0", two)
    yield Bug("+ i * (K_STEP / 2)", "+ i * K_STEP", two)
    yield Bug("further(v, i * K_STEP * 128)", "further(v, i * K_STEP * 64)", two)
    yield Bug("(128, HEAD, false, true)", "(128, HEAD, false, false)", two)
    yield Bug("group * 128 * 128", "group * 64 * 128", two)
    yield Bug("(u32)(group * GROUP_COLUMNS + SCORE_TILES * BLOCK_K)", "(u32)(group * GROUP_COLUMNS)", boxes)
    yield Bug("step % SCORE_TILES * BLOCK_K);", "0);", tiles)
    # Stores: shapes, registers, waits.
    for before, after, program in (
        ("16x128b.x16", "16x256b.x8", boxes),
        ("16x128b.x2", "16x256b.x1", two),
        ("16x256b.x8.b32 [%0]", "16x128b.x16.b32 [%0]", two),
        ("16x256b.x2.b32 [%0]", "16x128b.x4.b32 [%0]", narrow),
        ('x2.b32 [%0], {%1, %2, %3, %4};"', 'x2.b32 [%0], {%2, %1, %3, %4};"', two),
        ('x2.b32 [%0], {%1, %2, %3, %4};"', 'x2.b32 [%0], {%1, %3, %2, %4};"', two),
        ("{%1, %2, %3, %4, %5, %6, %7, %8};", "{%1, %3, %2, %4, %5, %6, %7, %8};", narrow),
        ("tcgen05.wait::st.sync.aligned;", "", two),
        ("tcgen05.wait::st.sync.aligned;", "tcgen05.wait::ld.sync.aligned;", two),
        ("& 3) << 21", "& 3) << 20", two),
        ("(u32)half << 20", "(u32)half << 19", two),
    ):
        yield Bug(before, after, program)
    # Order: waits, parities, fences and arrivals.
    weights = "mbarrier_wait(weights_full(group, step), parity_of(step));"
    yield Bug(weights, "", two)
    yield Bug(weights, weights.replace("parity_of(step)", "parity_of(step) ^ 1"), two)
    yield Bug("await_sums(group, before);", "", two)
    yield Bug("await_sums(group, before);", "", tiles)
    yield Bug("mbarrier_init(weights_full(group, place), 4);", "mbarrier_init(weights_full(group, place), 1);", two)
    stored = "    tensor_store_wait();\n    tensor_fence_before();\n    warp_barrier();"
    yield Bug(stored, "    tensor_store_wait();\n    warp_barrier();", two)
    yield Bug(stored, "    tensor_fence_before();\n    tensor_store_wait();\n    warp_barrier();", two)
    yield Bug(
        "parity_of(step));\n    tensor_fence_after();\n    tensor_load", "parity_of(step));\n    tensor_load", two
    )
    yield Bug("(u32)(step / SCORE_TILES) & 1", "(u32)step & 1", tiles)
    yield Bug("    umma_commit<1>(empty(slot));\n", "", two)
    yield Bug("    tensor_fence_before();\n    barrier();", "    tensor_fence_before();", narrow)
    yield Bug("mbarrier_wait(scores_full(place[0].group, 0), 0);", "", ragged)
    mask = "attention_tcgen05: copied mask"
    # Parts of groups, and the keys that these share.
    for before, after in (
        ("part / parts_of_group(params)", "part"),
        ("part / parts_of_group(params)", "part % parts_of_group(params)"),
        ("return params.advance[0];", "return params.batch_inner[1];"),
        ("entry_along(params.a_batch[1], part)", "entry_along(params.a_batch[1], kv_head)"),
        ("entry_along(params.b_batch[1], kv_head)", "entry_along(params.b_batch[1], part)"),
        ("entry_along(params.d_batch[1], kv_head)", "entry_along(params.d_batch[1], part)"),
        ("work.row / group + first", "work.row + first"),
    ):
        yield Bug(before, after, two)
    yield Bug("first = RAGGED ? work.first_query : 0", "first = 0", ragged)
    yield Bug(
        "mbarrier_init(mask_empty(tile), 8 * CONSUMERS);", "mbarrier_init(mask_empty(tile), 4 * CONSUMERS);", mask
    )
    yield Bug("{params, work, row + 16}};", "{params, work, row}};", mask)
    # The measure of weights.
    yield Bug("await_sums(place.group, step - 1);", "", tiles)
    yield Bug("kept[v / 2 % 2]", "kept[v % 2]", two)
    yield Bug("piece[v] *= math.kept[v / 2 % 2];", "piece[v] *= 1.0f;", two)
    yield Bug("1.0f : 8.0f) * reciprocal_(unit)", "1.0f : 800.0f) * reciprocal_(unit)", narrow)
    yield Bug("int lanes = 4;", "int lanes = 8;", two)
    yield Bug("kept[half] = grows ?", "kept[half] = !grows ?", two)
    # Exponentials by polynomials.
    for before, after in (
        ("POLYNOMIALS ? 1.0f : 8.0f", "POLYNOMIALS ? 8.0f : 8.0f"),
        ("bit_cast<u32>(shifted) << 23", "bit_cast<u32>(shifted) << 22"),
        ("fma_(-top * unit, 0.0078125f, 0.9921875f)", "fma_(-top, 0.0078125f, 0.9921875f)"),
    ):
        yield Bug(before, after, "attention_tcgen05: polynomials")


_HOPPER = (_warpgroups, _leaders, _mbarriers, _tensor_copies, _clusters, _registers_and_launches, _attention, _hold)
_ALL = (
    *(_loads, _stores, _shared, _copies, _matrices, _products, _scaled, _arithmetic),
    *(*_HOPPER, _copied_masks, _tensor_memory, _clusters_of_pairs, _tensor_scales, _attention_in_tensor_memory),
)
BUGS = [bug for group in _ALL for bug in group()]


@functools.cache
def _programs() -> dict[str, Configuration]:
    return {f"{each.group}: {each.name}": each for each in configurations()}


def program_of(bug: Bug) -> Configuration:
    """Return the Program in which a bug must be seen."""
    return _programs()[bug.program]


@functools.cache
def text_of(program: str) -> str:
    """Return the device code of a Program, by its name."""
    return _programs()[program].candidate.family.text


def with_bug(bug: Bug) -> Agreement:
    """Return what executing a Program's PTX says with a bug planted."""
    program = program_of(bug)
    text = text_of(bug.program)
    assert text.count(bug.before) == 1, f"{bug.before} occurs {text.count(bug.before)} times"
    source = bind(text.replace(bug.before, bug.after), json.loads(program.candidate.constants))
    return agree(program.candidate, program.workload, lookup(program.arch).target, source=source, emulated=False)
