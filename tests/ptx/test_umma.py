"""Products of tensor memory (tcgen05) in the executor: kinds, types, layouts, shapes and pairs of blocks."""

import functools
from dataclasses import replace

import pytest

from gensor_kernels.devices.ptx.translation.parse import NotExecutedError, PtxError, parse
from gensor_kernels.devices.ptx.translation.translate import translate
from tests.ptx.execute import Kernel, PtxFault
from tests.ptx.product_toys import DENSE, TILES, Tile
from tests.ptx.umma_toys import HEAD, Form, Problem, entry

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++

# ---- Results

FORMS = {
    "halves": Form("f32", "f16", "f16", 128, 24),
    "halves of 64 rows": Form("f32", "f16", "f16", 64, 40, across=(1, 0), signs=(-1, 1)),
    "halves in halves": Form("f16", "f16", "f16", 128, 256, across=(0, 1), signs=(1, -1)),
    "brains": Form("f32", "bf16", "bf16", 128, 64, across=(1, 1), signs=(-1, -1)),
    "halves and brains": Form("f32", "f16", "bf16", 64, 8),
    "halves of a pair": Form("f32", "f16", "f16", 256, 256, 2, across=(0, 1)),
    "brains of a small pair": Form("f32", "bf16", "bf16", 128, 48, 2, across=(1, 0)),
    "floats": Form("f32", "tf32", "tf32", 128, 32, signs=(1, -1)),
    "floats of a pair": Form("f32", "tf32", "tf32", 256, 64, 2),
    "e4m3": Form("f32", "e4m3", "e4m3", 128, 16, across=(1, 1)),
    "e4m3_e5m2": Form("f16", "e4m3", "e5m2", 64, 48, signs=(-1, 1)),
    "e5m2_e4m3": Form("f32", "e5m2", "e4m3", 128, 200),
    "e5m2 of a pair": Form("f32", "e5m2", "e5m2", 256, 96, 2, across=(0, 1)),
    "s8": Form("s32", "s8", "s8", 128, 24),
    "s8_u8": Form("s32", "s8", "u8", 64, 48, across=(0, 1)),
    "u8_s8 of a pair": Form("s32", "u8", "s8", 256, 64, 2, across=(1, 0)),
    "halves in tensor memory": Form("f32", "f16", "f16", 128, 64, held=True, across=(0, 1), signs=(-1, 1)),
    "e5m2 in tensor memory": Form("f32", "e5m2", "e4m3", 256, 64, 2, held=True),
    "e2m1_e3m2": Form("f32", "e2m1", "e3m2", 128, 24),
    "e2m3_e5m2": Form("f16", "e2m3", "e5m2", 64, 32, signs=(1, -1)),
    "e4m3_e5m2 scaled": Form("f32", "e4m3", "e5m2", 128, 80, across=(0, 1), scales=1, bytes=(2, 1)),
    "e3m2_e4m3 of a pair, scaled": Form("f32", "e3m2", "e4m3", 256, 192, 2, scales=1, bytes=(0, 3)),
    "e2m1_e2m3 scaled": Form("f32", "e2m1", "e2m3", 128, 64, signs=(-1, 1), scales=1),
    "e2m1 with two powers": Form("f32", "e2m1x2", "e2m1x2", 128, 64, scales=2, bytes=(2, 0)),
    "e2m1 with four scales": Form("f32", "e2m1x2", "e2m1x2", 128, 192, scales=4, powers=False),
    "e2m1 with four powers": Form("f32", "e2m1x2", "e2m1x2", 128, 40, scales=4, signs=(1, -1)),
    "e2m1 of a pair": Form("f32", "e2m1x2", "e2m1x2", 256, 128, 2, scales=4, powers=False),
    "u8": Form("s32", "u8", "u8", 128, 32, saturated=True),
}  # fmt: skip


@functools.cache
def _kernel(kind: str, blocks: int, held: bool) -> Kernel:
    return Kernel(HEAD + entry(kind, blocks, held))


def kernel_of(form: Form) -> Kernel:
    """Return the entry of a form's kind and blocks."""
    return _kernel(form.kind, form.blocks, form.held)


@pytest.mark.parametrize("name", FORMS)
def test_a_product_of_every_kind(name: str):
    form = FORMS[name]
    for late, kept, order in ((True, True, "reverse"), (False, False, 0)):
        problem = Problem.of(form, DENSE[form.across[0]], DENSE[form.across[1]], kept=kept)
        assert (problem.run(kernel_of(form), late=late, order=order) == problem.want).all()


def test_sums_are_aligned_and_truncated():
    for name in ("halves", "floats", "e4m3_e5m2"):
        form = replace(FORMS[name], across=(0, 0))
        problem = Problem.of(form, DENSE[0], DENSE[0], apart=1 / 3e4)
        assert (problem.run(kernel_of(form)) == problem.want).all(), name


@pytest.mark.parametrize(("across", "tile"), TILES)
def test_a_tile_of_every_layout(across: int, tile: Tile):
    for a in ("f16",) if across else ("f16", "e4m3", "tf32"):
        form = Form("f32", a, a, 64, 64)
        for majors, tiles in (((across, 0), (tile, DENSE[0])), ((0, across), (DENSE[0], tile))):
            problem = Problem.of(replace(form, across=majors), *tiles)
            assert (problem.run(kernel_of(form)) == problem.want).all(), (a, majors)


# ---- Rules; tests/ptx/rules has further ones

ONE = Form("f32", "f16", "f16", 128, 16)
LOAD = "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}, [%at];"
STORE = "tcgen05.st.sync.aligned.32x32b.x8.b32 [%at], {%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7};"
ALLOC, FREE = (
    f"tcgen05.{each}, 256;" for each in (
        "alloc.cta_group::1.sync.aligned.shared::cta.b32 [%hold]", "dealloc.cta_group::1.sync.aligned.b32 %memory",
    )
)  # fmt: skip
LOADED = "tcgen05.wait::ld.sync.aligned;"
PRODUCT = "tcgen05.mma.cta_group::1.kind::f16 [%memory], %da, %db, %form, %kept;"
#: an edit of the entry that breaks a rule, and the fault
BROKEN = {
    "stores that nothing waits for": ("tcgen05.wait::st.sync.aligned;", "", "race"),
    "a wait for loads": ("wait::st", "wait::ld", "race"),
    "stores without a fence": ("tcgen05.fence::before_thread_sync;", "", "race"),
    "products without a fence": ("tcgen05.fence::after_thread_sync;\n    add.s32 %i", "add.s32 %i", "race"),
    "loads without a fence": ("tcgen05.fence::after_thread_sync; // before loads", "", "race"),
    "tiles without a fence of proxies": ("fence.proxy.async.shared::cta;", "", "unfenced"),
    "another product": (PRODUCT, f"{PRODUCT} xor.b32 %form, %form, 0xc0000; {PRODUCT}", "race"),
    "a store on its way": (LOADED, f"{LOADED} {STORE}", "race|in_flight"),
    "no commit": ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];", "", "deadlock"),
    "half of the lanes": ("shl.b32 %quarter, %warp, 21;", "shl.b32 %quarter, %warp, 20;", "tensor"),
    "registers that are written": (LOAD, f"{LOAD} mov.b32 %d3, 0;", "in_flight"),
    "registers that are read": (LOAD, f"{LOAD} st.global.b32 [%mine], %d0;", "in_flight"),
    "registers of two loads": (LOAD, f"{LOAD} {LOAD}", "in_flight"),
    "more columns": (ALLOC, f"{ALLOC.replace('256', '32')} {ALLOC}", "tensor"),
    "columns freed twice": (FREE, f"{FREE} {FREE}", "tensor"),
    "a lane of freed columns": (FREE, f"add.s32 %memory, %memory, 0x10000; {FREE}", "tensor"),
    "freed columns": (FREE, f"{FREE} {LOAD}", "tensor"),
    "another commit": ("tcgen05.commit.cta_group::1", "tcgen05.commit.cta_group::2", "tensor"),
    "a type of six bits": ("setp.ne.u32 %kept", "or.b32 %form, %form, 0x180; setp.ne.u32 %kept", "invalid"),
    "a sparse matrix": ("setp.ne.u32 %kept", "or.b32 %form, %form, 4; setp.ne.u32 %kept", "not_executed"),
    "an absolute offset": ("ld.global.b32 %form", "or.b64 %da, %da, 0x10000000000000; ld.global.b32 %form",
                           "not_executed"),
    "a code of no swizzle": ("ld.global.b32 %form", "or.b64 %da, %da, 0x2000000000000000; ld.global.b32 %form",
                             "invalid"),
}  # fmt: skip


def test_broken_rules_are_faults():
    problem, text = Problem.of(ONE, DENSE[0], DENSE[0]), entry("f16", 1)
    texts = []
    for n, (before, after, _) in enumerate(BROKEN.values()):
        assert text.count(before) == 1, before
        texts.append(text.replace(before, after).replace(ONE.entry, f"broken_{n}"))
    kernel, found = Kernel(HEAD + "".join(texts)), {}
    for n, (name, (_, _, kind)) in enumerate(BROKEN.items()):
        kinds = set()
        for late in (False, True):
            try:
                problem.run(kernel, late=late, name=f"broken_{n}")
            except PtxFault as fault:
                kinds.add(str(fault).split(":")[0])
        found[name] = kinds <= set(kind.split("|")) and bool(kinds), kinds
    assert {name: kinds for name, (right, kinds) in found.items() if not right} == {}


def translated(text: str, target: str = "sm_100a") -> None:
    """Translate one instruction in an entry."""
    registers = ".reg .b64 %a, %b; .reg .b32 %r<8>; .reg .pred %p;"
    translate(parse(f"{HEAD.replace('sm_100a', target)}.visible .entry one()\n{{ {registers} {text} ret; }}"))


def test_forms_that_are_not_executed_are_named():
    for text in (
        "tcgen05.mma.cta_group::1.kind::f16 [%r0], %a, %b, %r1, {%r2, %r3, %r4, %r5}, %p;",
        "tcgen05.mma.cta_group::1.kind::f16 [%r0], %a, %b, %r1, %p, 3;",
        "tcgen05.mma.sp.cta_group::1.kind::f16 [%r0], %a, %b, [%r2], %r1, %p;",
        "tcgen05.mma.ws.cta_group::1.kind::f16 [%r0], %a, %b, %r1, %p;",
        "tcgen05.mma.cta_group::1.kind::f16.collector::a::use [%r0], %a, %b, %r1, %p;",
        "tcgen05.ld.sync.aligned.16x64b.x1.b32 {%r1}, [%r0];",
        "tcgen05.ld.sync.aligned.32x32b.x1.pack::16b.b32 {%r1}, [%r0];",
        "tcgen05.shift.cta_group::1.down [%r0];",
        "tcgen05.cp.cta_group::1.128x256b [%r0], %a;",
    ):
        with pytest.raises(NotExecutedError, match=r"^tcgen05\."):
            translated(text)
    kept = "tcgen05.mma.cta_group::1.kind::i8 [%r0], %a, %b, %r1, %p;"
    translated(kept)
    for target in ("sm_90a", "sm_100", "sm_103a", "sm_120a"):
        with pytest.raises(PtxError, match=f"on {target}"):
            translated(kept, target)
    scaled = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.{} [%r0], %a, %b, %r1, [%r2], [%r3], %p;"
    translated(scaled.format("block16"), "sm_103f")
    with pytest.raises(PtxError, match="on sm_103f"):
        translated(scaled.format("scale_vec::4X"), "sm_103f")
    with pytest.raises(PtxError, match="no such scales"):
        translated(scaled.format("scale_vec::1X"))
    for text in (kept.replace("[%r0]", "[%a]"), "tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r1, %r2, %r3, %r3}, [%r0];"):
        with pytest.raises(PtxError):
            translated(text)


#: edits of the entry with four scales of a row, which give other sums or a fault
WRONG_SCALES = (
    ("[%memory+200], [%memory+208], ", "[%memory+208], [%memory+200], "),
    ("[%memory+200], [%memory+208], ", "[%memory+200], [%memory+212], "),
    ("[%memory+200], [%memory+208], ", "[%memory+200], [%memory+255], "),
    ("tcgen05.cp.cta_group::1.32x128b.warpx4 [%memory+200], %mine;", ""),
    ("tcgen05.cp.cta_group::1.32x128b.warpx4 [%memory+212], %mine;", ""),
    ("32x128b.warpx4 [%memory+208], %mine;", "32x128b.warpx4 [%memory+209], %mine;"),
    ("32x128b.warpx4 [%memory+200], %mine;", "32x128b.warpx4 [%memory+0x100c8], %mine;"),
    ("32x128b.warpx4 [%memory+200], %mine;", "32x128b.warpx4 [%memory+253], %mine;"),
    ("ld.global.b32 %scale", "xor.b32 %form, %form, 0x800000; ld.global.b32 %scale"),  # the type of scales
    ("ld.global.b32 %scale", "xor.b32 %form, %form, 0x20000000; ld.global.b32 %scale"),  # bytes of A's
    ("ld.global.b32 %scale", "xor.b32 %form, %form, 0x10; ld.global.b32 %scale"),  # bytes of B's
    ("ld.global.b32 %scale", "xor.b32 %form, %form, 0x1000; ld.global.b32 %scale"),  # a reserved bit
    ("scale_vec::4X", "scale_vec::2X"),
)


def test_wrong_scales_are_seen():
    form = FORMS["e2m1 with four scales"]
    problem, text = Problem.of(form, DENSE[0], DENSE[0]), entry(form.kind, 1)
    texts = [text]
    for n, (before, after) in enumerate(WRONG_SCALES):
        assert text.count(before) == 1, before
        texts.append(text.replace(before, after).replace(form.entry, f"wrong_{n}"))
    kernel = Kernel(HEAD + "".join(texts))
    assert (problem.run(kernel) == problem.want).all()
    for n, edit in enumerate(WRONG_SCALES):
        try:
            assert (problem.run(kernel, name=f"wrong_{n}") != problem.want).any(), edit
        except PtxFault:
            continue
