"""Instructions of the executor against values worked out by hand from the PTX ISA."""

import re
import struct

import numpy as np
import pytest

from gensor_kernels.devices.ptx.translation.parse import NotExecutedError, PtxError, parse
from gensor_kernels.devices.ptx.translation.translate import translate
from gensor_kernels.families.core.family import Launch
from tests.ptx.execute import Kernel, Memory, PtxFault

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 shared[];\n"
REGISTERS = (
    ".reg .pred %p<8>; .reg .b16 %rs<8>; .reg .b32 %r<32>; .reg .f32 %f<32>; .reg .b64 %rd<16>; .reg .f64 %fd<16>;"
)


def entry(name: str, body: str) -> str:
    """An entry whose first parameter is the address of the output, and the second that of the input."""
    return f"""
.visible .entry {name}(.param .align 8 .b8 {name}_param_0[16])
.maxntid 64, 1, 1
{{
    {REGISTERS}
    ld.param.u64 %rd0, [{name}_param_0];
    ld.param.u64 %rd1, [{name}_param_0+8];
    mov.u32 %r0, %tid.x;
    {body}
    ret;
}}
"""


def run(kernel: Kernel, name: str, out: np.ndarray, source: np.ndarray, *, late: bool = False) -> None:
    """Run an entry in one block of a warp, with 1024 bytes of shared memory."""
    memory = Memory()
    places = [memory.place(each.ctypes.data, each.nbytes, each is out) for each in (out, source)]
    kernel.run([Launch(name, 1, 32, 1024)], struct.pack("<2Q", *places), memory, late=late, order="forward")


def single(value: float) -> int:
    """The bits of a float32."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


def double(value: float) -> int:
    """The bits of a float64."""
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def f(value: float) -> str:
    """A float32 as an operand."""
    return f"0f{single(value):08x}"


def d(value: float) -> str:
    """A float64 as an operand."""
    return f"0d{double(value):016x}"


NAN = 0x7FFFFFFF
TINY = 2.0**-140
#: instruction with its result in %r9, %f9, %rd9, %fd9 or %p1, and the bits of the result
RESULTS = [
    # integers wrap, multiply high and wide, and shift by more than their bits
    ("add.s32 %r9, 2147483647, 1;", 0x80000000),
    ("sub.s32 %r9, 0, 1;", 0xFFFFFFFF),
    ("mul.hi.s32 %r9, -2, 3;", 0xFFFFFFFF),
    ("mul.hi.u32 %r9, -2, 3;", 2),
    ("mul.wide.s32 %rd9, -2, 3;", 2**64 - 6),
    ("mul.wide.u32 %rd9, -2, 3;", 3 * (2**32 - 2)),
    ("mad.lo.s32 %r9, -2, 3, 10;", 4),
    ("mad.wide.u16 %r9, 65535, 65535, 1;", 65535 * 65535 + 1),
    ("mul.hi.s64 %rd9, -1, 1;", 2**64 - 1),
    ("div.s32 %r9, -7, 2;", 2**32 - 3),
    ("rem.s32 %r9, -7, 2;", 2**32 - 1),
    ("div.u32 %r9, -7, 2;", (2**32 - 7) // 2),
    ("shl.b32 %r9, 1, 32;", 0),
    ("shr.s32 %r9, -8, 40;", 0xFFFFFFFF),
    ("shr.u32 %r9, -8, 1;", 0x7FFFFFFC),
    ("shr.s64 %rd9, -8, 1;", 2**64 - 4),
    ("shf.l.wrap.b32 %r9, 0x89ABCDEF, 0x01234567, 36;", 0x12345678),
    ("shf.r.wrap.b32 %r9, 0x89ABCDEF, 0x01234567, 4;", 0x789ABCDE),
    ("bfi.b32 %r9, 0xFF, 0, 8, 4;", 0xF00),
    ("bfe.u32 %r9, 0xABCD, 4, 8;", 0xBC),
    ("bfe.s32 %r9, 0xABCD, 8, 8;", 0xFFFFFFAB),
    ("prmt.b32 %r9, 0x33221100, 0x77665544, 0x7250;", 0x77225500),
    ("prmt.b32 %r9, 0x80221100, 0, 0xB0B0;", 0xFF00FF00),
    ("lop3.b32 %r9, 0xF0, 0xCC, 0xAA, 0xCA;", 0xCA),  # a ? b : c
    ("popc.b32 %r9, 0xF0F0;", 8),
    ("clz.b32 %r9, 1;", 31),
    ("min.s32 %r9, -1, 1;", 0xFFFFFFFF),
    ("min.u32 %r9, -1, 1;", 1),
    ("not.b32 %r9, 0;", 0xFFFFFFFF),
    ("neg.s32 %r9, 5;", 2**32 - 5),
    ("abs.s32 %r9, -5;", 5),
    ("dp4a.s32.s32 %r9, 0xFF020304, 0x01010101, 10;", 10 - 1 + 2 + 3 + 4),
    # floats: one rounding of fma, directed rounding, flushing, saturation, NaN and signed zeros
    (f"fma.rn.f32 %f9, {f(1 + 2**-12)}, {f(1 + 2**-12)}, {f(-1)};", single(2**-11 + 2**-24)),
    (f"fma.rm.f32 %f9, {f(1)}, {f(1)}, {f(2**-30)};", single(1)),
    (f"fma.rp.f32 %f9, {f(1)}, {f(1)}, {f(2**-30)};", single(1) + 1),
    (f"fma.rz.f32 %f9, {f(-1)}, {f(1)}, {f(-(2**-30))};", single(-1)),
    (f"add.rm.f32 %f9, {f(-1)}, {f(-(2**-30))};", single(-1) + 1),
    (f"add.ftz.f32 %f9, {f(TINY)}, {f(TINY)};", 0),
    (f"add.f32 %f9, {f(TINY)}, {f(TINY)};", single(2 * TINY)),
    (f"mul.sat.f32 %f9, {f(3)}, {f(3)};", single(1)),
    ("add.sat.f32 %f9, 0f7fc00000, 0f00000000;", 0),
    ("add.f32 %f9, 0fff812345, 0f00000000;", NAN),
    ("mov.f32 %f9, 0fff812345;", 0xFF812345),
    (f"max.f32 %f9, 0f7fc00000, {f(-3)};", single(-3)),
    (f"max.NaN.f32 %f9, 0f7fc00000, {f(-3)};", NAN),
    ("max.f32 %f9, 0f80000000, 0f00000000;", 0),
    ("min.f32 %f9, 0f00000000, 0f80000000;", 0x80000000),
    ("neg.f32 %f9, 0f00000000;", 0x80000000),
    (f"rcp.rn.f32 %f9, {f(3)};", single(1 / 3)),
    (f"ex2.approx.ftz.f32 %f9, {f(3)};", single(8)),
    (f"ex2.approx.ftz.f32 %f9, {f(-149)};", 0),
    (f"rcp.approx.ftz.f64 %fd9, {d(3)};", double(1 / 3) & ~0xFFFFFFFF),
    (
        f"mov.b64 %rd2, {{{f(2)}, {f(1 + 2**-12)}}}; mov.b64 %rd3, {{{f(3)}, {f(-1)}}};"
        " fma.rn.f32x2 %rd9, %rd2, %rd2, %rd3;",
        single(7) | single(2**-11 + 2**-24) << 32,
    ),
    (f"fma.rn.f64 %fd9, {d(1 + 2**-30)}, {d(1 + 2**-30)}, {d(-1)};", double(2**-29 + 2**-60)),
    # conversions: clamped, rounded, widened from the low bits
    (f"cvt.rzi.s32.f32 %r9, {f(-2.9)};", 2**32 - 2),
    (f"cvt.rni.s32.f32 %r9, {f(2.5)};", 2),
    (f"cvt.rzi.s32.f32 %r9, {f(1e20)};", 0x7FFFFFFF),
    ("cvt.rzi.s32.f32 %r9, 0f7fc00000;", 0),
    (f"cvt.rzi.u32.f32 %r9, {f(-4)};", 0),
    (f"cvt.rni.f32.f32 %f9, {f(-0.5)};", 0x80000000),
    (f"cvt.sat.f32.f32 %f9, {f(-0.5)};", 0),
    (f"cvt.rna.tf32.f32 %r9, 0f{single(1) + 0x1000:08x};", single(1) + 0x2000),
    (f"cvt.rn.f16x2.f32 %r9, {f(1)}, {f(2)};", 0x3C004000),
    (f"cvt.rn.bf16x2.f32 %r9, 0f{single(1) + 0x8000:08x}, 0f{single(1) + 0x18000:08x};", 0x3F803F82),
    (f"cvt.rn.f16x2.f32 %r9, {f(65520)}, {f(2**-25)};", 0x7C000000),
    ("mov.b16 %rs1, 0x387E; cvt.rn.f16x2.e4m3x2 %r9, %rs1;", 0x3C005F00),
    ("cvt.s32.s8 %r9, 0x1FF;", 0xFFFFFFFF),
    ("cvt.u32.u8 %r9, 0x1FF;", 0xFF),
    ("cvt.sat.u8.s32 %r9, -5;", 0),
    ("cvt.s64.s32 %rd9, -5;", 2**64 - 5),
    ("cvt.rz.f32.s32 %f9, 16777217;", single(16777216)),
    ("cvt.rp.f32.s32 %f9, 16777217;", single(16777218)),
    (f"cvt.rn.f32.f64 %f9, {d(1 + 2**-25)};", single(1)),
    # packing: the first part is the lowest
    ("mov.b16 %rs1, 1; mov.b16 %rs2, 2; mov.b32 %r9, {%rs1, %rs2};", 0x20001),
    ("mov.b64 {%r9, _}, 0x100000002;", 2),
    # comparisons, ordered and not
    ("setp.lt.f32 %p1, 0f7fc00000, 0f00000000;", 0),
    ("setp.ltu.f32 %p1, 0f7fc00000, 0f00000000;", 1),
    ("setp.ne.f32 %p1, 0f7fc00000, 0f00000000;", 0),
    ("setp.neu.f32 %p1, 0f7fc00000, 0f00000000;", 1),
    ("setp.nan.f32 %p1, 0f7fc00000, 0f00000000;", 1),
    ("setp.gt.u32 %p1, -1, 1;", 1),
    ("setp.gt.s32 %p1, -1, 1;", 0),
    ("setp.eq.s32 %p2, 1, 1; setp.eq.and.s32 %p1, 1, 2, %p2;", 0),
    ("setp.eq.s32 %p2, 1, 1; selp.b32 %r9, 7, 8, %p2;", 7),
    # lanes: this is thread 0 of a warp
    ("shfl.sync.bfly.b32 %r9|%p1, %r0, 5, 31, -1;", 5),
    ("shfl.sync.down.b32 %r9, %r0, 3, 0x1C03, -1;", 3),
    ("shfl.sync.up.b32 %r9, %r0, 1, 0, -1;", 0),
    ("shfl.sync.idx.b32 %r9, %r0, 31, 0x181F, -1;", 7),
    ("setp.gt.u32 %p2, %r0, 29; vote.sync.ballot.b32 %r9, %p2, -1;", 0xC0000000),
    ("setp.eq.u32 %p2, %r0, 31; bar.red.or.pred %p1, 0, %p2;", 1),
    ("setp.eq.u32 %p2, %r0, 32; barrier.cta.red.or.aligned.pred %p1, 1, 32, %p2;", 0),
    ("redux.sync.max.s32 %r9, %r0, -1;", 31),
    ("redux.sync.add.s32 %r9, %r0, -1;", 31 * 16),
]  # fmt: skip


def _stored(text: str, slot: int) -> str:
    register = next(each for each in ("%r9", "%f9", "%rd9", "%fd9", "%p1") if each in text)
    if register == "%p1":
        return f"{text} selp.u32 %r9, 1, 0, %p1; @%p7 st.global.u32 [%rd0+{slot * 8}], %r9;"
    kind = {"%r9": "u32", "%f9": "f32", "%rd9": "u64", "%fd9": "f64"}[register]
    return f"{text} @%p7 st.global.{kind} [%rd0+{slot * 8}], {register};"


def test_results_are_those_of_the_manual():
    body = "\n".join(_stored(text, slot) for slot, (text, _) in enumerate(RESULTS))
    kernel = Kernel(HEAD + entry("results", f"setp.eq.s32 %p7, %r0, 0;\n{body}"))
    out = np.zeros(len(RESULTS), np.uint64)
    run(kernel, "results", out, np.zeros(1))
    wrong = [(text, hex(want), hex(int(got))) for (text, want), got in zip(RESULTS, out, strict=True) if got != want]
    assert not wrong


FAULTS = {
    "beyond": ("st.global.u32 [%rd0+32], %r0;", "out_of_bounds"),
    "readonly": ("st.global.u32 [%rd1], %r0;", "out_of_bounds"),
    "odd": ("ld.global.v2.u32 {%r1, %r2}, [%rd1+4];", "misaligned"),
    "small": ("mov.u32 %r1, shared; st.shared.u32 [%r1+1024], %r0;", "out_of_bounds"),
    "null": ("mov.u32 %r1, 0; ld.shared.u32 %r2, [%r1];", "out_of_bounds"),
    "row": (
        "mov.u32 %r1, shared; add.s32 %r1, %r1, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];",
        "misaligned",
    ),
    "apart": ("setp.lt.u32 %p1, %r0, 16; @%p1 bra over; bar.sync 0; over:", "divergent"),
    "matrices": (
        "mov.u32 %r1, shared; setp.lt.u32 %p1, %r0, 16; @%p1 bra on; "
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1]; on:",
        "divergent",
    ),
    "waiting": ("bar.sync 1, 64;", "deadlock"),
    "endless": ("again: bra again;", "timeout"),
    "stranger": ("setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.bfly.b32 %r1, %r0, 16, 31, 0xFFFF;", "invalid"),
    "unknown": ("setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; bar.sync 0;", "divergent"),
}


def test_launches_have_the_verifiers_blocks():
    """Five of those that wait for one another, and as many as two multiprocessors hold of those that walk."""
    kernel = Kernel(HEAD + entry("counted", "mov.u32 %r1, %nctaid.x; st.global.u32 [%rd0], %r1;"))
    for launch, blocks in (
        (Launch("counted", 12, 32, 0, per_sm=2, together=True), 5),
        (Launch("counted", 3, 32, 0, per_sm=2, together=True), 3),
        (Launch("counted", 12, 32, 0, per_sm=2), 4),
        (Launch("counted", 12, 32, 0), 12),
    ):
        out, memory = np.zeros(1, np.uint32), Memory()
        address = memory.place(out.ctypes.data, out.nbytes, True)
        kernel.run([launch], struct.pack("<2Q", address, 0), memory, late=False, order="forward")
        assert out.tolist() == [blocks]


def test_broken_rules_are_faults():
    kernel = Kernel(HEAD + "".join(entry(name, body) for name, (body, _) in FAULTS.items()))
    for name, (_, kind) in FAULTS.items():
        with pytest.raises(PtxFault) as found:
            run(kernel, name, np.zeros(8, np.uint32), np.zeros(8, np.uint32))
        assert str(found.value).startswith(f"{kind}: ") and str(found.value).endswith(f" in {name}"), name


COPY = """
    mov.u32 %r1, shared; mad.lo.s32 %r1, %r0, 16, %r1;
    cp.async.cg.shared.global [%r1], [%rd1], 16, 8;
    cp.async.commit_group;
    {wait}
    ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, [%r1];
    st.global.v4.u32 [%rd0], {{%r2, %r3, %r4, %r5}};
"""


def test_copies_arrive_when_they_are_issued_or_when_they_are_waited_for():
    waits = {"all": "cp.async.wait_group 0;", "none": "cp.async.wait_group 1;"}
    kernel = Kernel(HEAD + "".join(entry(name, COPY.format(wait=wait)) for name, wait in waits.items()))
    source = np.arange(1, 5, dtype=np.uint32)
    for name, late, want in (
        ("all", True, [1, 2, 0, 0]),
        ("none", False, [1, 2, 0, 0]),
        ("none", True, [2**32 - 1] * 4),
    ):
        out = np.zeros(4, np.uint32)
        run(kernel, name, out, source, late=late)
        assert out.tolist() == want


def test_what_is_not_executed_is_named():
    for text in (
        "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%r1, %r2, %r3, %r4}, %rd1, %rd2, 1;",
        "add.cc.s32 %r1, %r2, %r3;",
        "fma.rn.relu.f16x2 %r1, %r2, %r3, %r4;",
        "ld.global.L1::evict_last.b32 %r1, [%rd1];",
        "cp.async.bulk.tensor.2d.shared::cluster.global [%r1], [%rd1, {%r2, %r3}], [%r4];",
    ):
        opcode = re.split("[ ;]", text)[0]
        with pytest.raises(NotExecutedError) as found:
            translate(parse(HEAD + entry("unknown", text)))
        assert str(found.value) == opcode


def test_operands_of_another_size_are_refused():
    for text in ("add.s32 %r1, %rd2, %r3;", "add.f32 %f1, %f2, 3;", "ld.global.v4.u32 {%r1, %r2}, [%rd1];"):
        with pytest.raises(PtxError):
            translate(parse(HEAD + entry("sizes", text)))
