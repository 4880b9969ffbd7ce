"""Products of warpgroups (wgmma) in the executor: every type, layout and swizzle of the manual; rules broken."""

import struct
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gensor_kernels.operators.types.dtypes import encode
from gensor_kernels.programs.core.family import Launch
from tests.ptx.execute import Kernel, Memory, PtxFault
from tests.ptx.translation.parse import PtxError, parse
from tests.ptx.translation.translate import translate

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 shared[];\n"
IMAGE = 65536  # bytes of shared memory
#: names in PTX -> dtype, bytes, elements of k in a product
TYPES = {
    "f16": ("float16", 2, 16),
    "bf16": ("bfloat16", 2, 16),
    "tf32": ("float32", 4, 8),
    "e4m3": ("float8_e4m3fn", 1, 32),
    "e5m2": ("float8_e5m2", 1, 32),
    "s8": ("int8", 1, 32),
    "u8": ("uint8", 1, 32),
}


@dataclass(frozen=True)
class Form:
    """A product: types of d, a and b, columns, whether a is in registers; major axes and signs."""

    d: str
    a: str
    b: str
    n: int
    held: bool = False
    across: tuple[int, int] = (0, 0)
    signs: tuple[int, int] = (1, 1)
    saturated: bool = False

    @property
    def k(self) -> int:
        """Elements of k."""
        return TYPES[self.a][2]

    @property
    def sums(self) -> int:
        """Registers of d."""
        return self.n // (4 if self.d == "f16" else 2)

    def text(self, sums: str = "%d") -> str:
        """The instruction."""
        opcode = f"wgmma.mma_async.sync.aligned.m64n{self.n}k{self.k}.{self.d}.{self.a}.{self.b}"
        d = ", ".join(f"{sums}{i}" for i in range(self.sums))
        constants = [*self.signs] if self.d != "s32" else []
        constants += self.across[self.held :] if self.a in ("f16", "bf16") else []
        operands = [f"{{{d}}}", "{%a0, %a1, %a2, %a3}" if self.held else "%da", "%db", "%kept", *map(str, constants)]
        return f"{opcode}{'.satfinite' if self.saturated else ''} {', '.join(operands)};"


FENCE, COMMIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"
PROXY, BARRIER = "fence.proxy.async.shared::cta;", "bar.sync 0;"


def entry(name: str, form: Form, steps: str) -> str:
    """An entry that stores an image into shared memory, loads a and d, takes steps, and stores d."""
    return f"""
.visible .entry {name}(.param .align 8 .b8 {name}_param_0[16])
{{
    .reg .b64 %out, %in, %from, %mine, %da, %db, %base;
    .reg .b32 %t, %to, %i, %scale, %w<4>, %a<4>, %d<{form.sums}>, %e<{form.sums}>, %other;
    .reg .pred %kept, %p;
    ld.param.u64 %out, [{name}_param_0];
    ld.param.u64 %in, [{name}_param_0+8];
    mov.u32 %t, %tid.x;
    mov.u32 %to, shared;
    shr.u32 %i, %to, 4;
    cvt.u64.u32 %base, %i;
    ld.global.b64 %da, [%in];
    ld.global.b64 %db, [%in+8];
    add.s64 %da, %da, %base;
    add.s64 %db, %db, %base;
    ld.global.b32 %scale, [%in+16];
    setp.ne.u32 %kept, %scale, 0;
    mad.lo.u32 %to, %t, 16, %to;
    mad.wide.u32 %from, %t, 16, %in;
    mad.wide.u32 %mine, %t, {16 + 4 * form.sums}, %in;
    {"".join(f"ld.global.b32 %a{i}, [%mine+{32 + IMAGE + 4 * i}];" for i in range(4))}
    {"".join(f"ld.global.b32 %d{i}, [%mine+{48 + IMAGE + 4 * i}]; mov.b32 %e{i}, %d{i};" for i in range(form.sums))}
    mov.u32 %i, 0;
again:
    ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%from+32];
    st.shared.v4.b32 [%to], {{%w0, %w1, %w2, %w3}};
    add.s64 %from, %from, 2048;
    add.s32 %to, %to, 2048;
    add.s32 %i, %i, 2048;
    setp.lt.u32 %p, %i, {IMAGE};
    @%p bra again;
    {steps}
    mad.wide.u32 %mine, %t, {4 * form.sums}, %out;
    {"".join(f"st.global.b32 [%mine+{4 * i}], %d{i};" for i in range(form.sums))}
    ret;
}}
"""


def steps(form: Form) -> str:
    """One product, done right."""
    return f"{PROXY} {BARRIER} {FENCE} {form.text()} {COMMIT} {WAIT}"


# ---- Tiles

#: (across, swizzle) -> the canonical layout of the manual: sizes of x and its strides, sizes of k and its strides, in
#: elements, with T elements to 16 bytes and both offsets L and S
CANONICAL = {
    (1, 0): lambda T, L, S: (((T, 1), (1, T, S)), ((8,), (T, L))),
    (1, 3): lambda T, L, S: (((T, 2), (1, T, L)), ((8,), (2 * T, S))),
    (1, 2): lambda T, L, S: (((T, 4), (1, T, L)), ((8,), (4 * T, S))),
    (1, 1): lambda T, L, S: (((T, 8), (1, T, L)), ((8,), (8 * T, S))),
    (0, 0): lambda T, L, S: (((8,), (T, S)), ((T,), (1, L))),
    (0, 3): lambda T, L, S: (((8,), (2 * T, S)), ((T,), (1, T))),
    (0, 2): lambda T, L, S: (((8,), (4 * T, S)), ((T,), (1, T))),
    (0, 1): lambda T, L, S: (((8,), (8 * T, S)), ((T,), (1, T))),
}


def inner(sizes: tuple[int, ...], strides: tuple[int, ...], at: int) -> int:
    """The offset of one coordinate of a layout; the last size is open."""
    offset = 0
    for size, stride in zip(sizes, strides, strict=False):
        offset, at = offset + at % size * stride, at // size
    return offset + at * strides[-1]


@dataclass(frozen=True)
class Tile:
    """How a matrix lies in shared memory: the start and both offsets in bytes, the swizzle, the pattern's start."""

    start: int
    leading: int
    stride: int
    swizzle: int = 1
    pattern: int = 0

    @property
    def descriptor(self) -> int:
        """The matrix descriptor, less the base of shared memory."""
        base = self.pattern >> 7 & 7
        return self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | base << 49 | self.swizzle << 62

    def place(self, image: np.ndarray, matrix: np.ndarray, across: int) -> None:
        """Store a matrix of (x, k) into an image of shared memory, whose base is a multiple of 1024 bytes."""
        size = matrix.itemsize
        xs, ks = CANONICAL[across, self.swizzle](16 // size, self.leading // size, self.stride // size)
        bits = {0: 0, 1: 3, 2: 2, 3: 1}[self.swizzle]
        raw = matrix.view(np.uint8).reshape(*matrix.shape, size)
        for x in range(matrix.shape[0]):
            for k in range(matrix.shape[1]):
                at = self.start + size * (inner(*xs, x) + inner(*ks, k)) - self.pattern
                at ^= (at >> 7 & 2**bits - 1) << 4  # Swizzle<bits, 4, 3>
                image[at + self.pattern : at + self.pattern + size] = raw[x, k]


#: across, and a tile of up to 64 rows or columns of k's 32 bytes: as dense as may be, and with gaps
TILES = [
    (0, Tile(1024, 16, 1024)),
    (0, Tile(1024 + 64, 16, 1024)),  # the second 32 bytes of each row
    (0, Tile(2048, 0, 512, 2)),
    (0, Tile(256, 16, 768, 3)),
    (0, Tile(1024, 128, 256, 0)),
    (0, Tile(1024, 2048, 128, 0)),
    (0, Tile(1024 + 384, 16, 1024, 1, 384)),
    (0, Tile(512 + 128, 16, 512, 2, 128)),
    (1, Tile(1024, 2048, 1024)),
    (1, Tile(1024 + 2048, 4096, 1024)),
    (1, Tile(1024, 1024, 512, 2)),
    (1, Tile(256, 512, 256, 3)),
    (1, Tile(1024, 1024, 128, 0)),
    (1, Tile(1024, 128, 2048, 0)),
    (1, Tile(1024 + 256, 2048, 1024, 1, 256)),
]  # fmt: skip
DENSE = {0: TILES[0][1], 1: TILES[8][1]}


def values(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Small integers that the type holds, of both signs where it has them."""
    low, high = {"u8": (0, 256), "s8": (-128, 128)}.get(kind, (-4, 5))
    return rng.integers(low, high, shape)


def bits_of(kind: str, matrix: np.ndarray) -> np.ndarray:
    """A matrix in the storage of a type of PTX."""
    name = TYPES[kind][0]
    return matrix.astype(name) if "int" in name else encode(name, matrix.astype(float))


def fragments(matrix: np.ndarray) -> np.ndarray:
    """Matrix A as each thread's four registers (figures of the manual), in bytes."""
    each = 4 // matrix.itemsize
    held = np.zeros((128, 4, each), matrix.dtype)
    for t in range(128):
        row, place = t // 32 * 16 + t % 32 // 4, t % 4
        for i in range(4 * each):
            register, part = i // each, i % each
            column = place * each + part + (4 * each if register >= 2 else 0)
            held[t, register, part] = matrix[row + 8 * (register % 2), column]
    return held.view(np.uint8).reshape(128, 16)


def accumulators(form: Form, matrix: np.ndarray) -> np.ndarray:
    """Matrix D as each thread's registers, in bytes."""
    held = np.zeros((128, form.n // 2), matrix.dtype)
    for t in range(128):
        for i in range(form.n // 2):
            row = t // 32 * 16 + t % 32 // 4 + 8 * (i // 2 % 2)
            held[t, i] = matrix[row, i // 4 * 8 + t % 4 * 2 + i % 2]
    return held.view(np.uint8).reshape(128, 4 * form.sums)


@dataclass
class Problem:
    """The input of an entry, and what it must leave."""

    source: np.ndarray
    want: np.ndarray

    @classmethod
    def of(cls, form: Form, tile_a: Tile, tile_b: Tile, *, kept: bool = True, seed: int = 3) -> "Problem":
        """Random matrices in these tiles; B lies 32 KiB behind A."""
        rng = np.random.default_rng(seed)
        a, b = values(rng, form.a, (64, form.k)), values(rng, form.b, (form.n, form.k))
        d = rng.integers(-64, 65, (64, form.n))
        if form.saturated:
            d = d + np.where(d > 0, 2**31 - 65, 64 - 2**31)
        image = rng.integers(0, 256, IMAGE).astype(np.uint8)
        stored = bits_of(form.a, a)
        if stored.dtype == np.float32:
            stored = (stored.view(np.uint32) | 0x1FFF).view(np.float32)  # bits that are cut off
        if not form.held:
            tile_a.place(image, stored, form.across[0])
        behind = replace(tile_b, start=tile_b.start + 32768)
        behind.place(image, bits_of(form.b, b), form.across[1])
        sum_type = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[form.d]
        header = struct.pack("<2QI12x", tile_a.descriptor, behind.descriptor, kept)
        mine = np.concatenate([fragments(stored), accumulators(form, d.astype(sum_type))], axis=1)
        source = np.concatenate([np.frombuffer(header, np.uint8), image, mine.reshape(-1)])
        product = a.astype(np.int64) @ b.T.astype(np.int64) * form.signs[0] * form.signs[1] + kept * d
        if form.saturated:
            product = product.clip(-(2**31), 2**31 - 1)
        return cls(source, accumulators(form, product.astype(sum_type)))

    def run(
        self, kernel: Kernel, name: str, *, late: bool = True, order: str | int = 0, threads: int = 128
    ) -> np.ndarray:
        """Run an entry; return the bytes it leaves for each thread."""
        out = np.zeros_like(self.want)
        memory = Memory()
        places = [memory.place(each.ctypes.data, each.nbytes, each is out) for each in (out, self.source)]
        kernel.run([Launch(name, 1, threads, IMAGE)], struct.pack("<2Q", *places), memory, late=late, order=order)
        return out


# ---- Results

FORMS = {
    "halves": Form("f32", "f16", "f16", 24, across=(0, 0)),
    "halves_b": Form("f32", "f16", "f16", 64, across=(0, 1)),
    "halves_a": Form("f16", "f16", "f16", 40, across=(1, 0), signs=(-1, 1)),
    "halves_ab": Form("f16", "f16", "f16", 128, across=(1, 1), signs=(-1, -1)),
    "halves_held": Form("f16", "f16", "f16", 8, True),
    "brains": Form("f32", "bf16", "bf16", 16, across=(1, 1), signs=(1, -1)),
    "brains_held": Form("f32", "bf16", "bf16", 64, True, (0, 1)),
    "floats": Form("f32", "tf32", "tf32", 32),
    "floats_held": Form("f32", "tf32", "tf32", 16, True, signs=(-1, 1)),
    "e4m3": Form("f32", "e4m3", "e4m3", 8),
    "e4m3_e5m2": Form("f16", "e4m3", "e5m2", 16),
    "e5m2_e4m3": Form("f32", "e5m2", "e4m3", 16, True),
    "e5m2": Form("f16", "e5m2", "e5m2", 24, signs=(-1, 1)),
    "s8": Form("s32", "s8", "s8", 8),
    "s8_u8": Form("s32", "s8", "u8", 16, True),
    "u8_s8": Form("s32", "u8", "s8", 24),
    "u8": Form("s32", "u8", "u8", 32, saturated=True),
    "wide": Form("f32", "f16", "f16", 256, across=(0, 1)),
}  # fmt: skip


@pytest.fixture(scope="module")
def products() -> Kernel:
    """Every form, a correct product of each."""
    return Kernel(HEAD + "".join(entry(name, form, steps(form)) for name, form in FORMS.items()))


@pytest.mark.parametrize("name", FORMS)
def test_a_product_of_every_type(products: Kernel, name: str):
    form = FORMS[name]
    for late, kept, order in ((True, True, "reverse"), (False, False, 0)):
        problem = Problem.of(form, DENSE[form.across[0]], DENSE[form.across[1]], kept=kept)
        assert (problem.run(products, name, late=late, order=order) == problem.want).all()


@pytest.mark.parametrize(("across", "tile"), TILES)
def test_a_tile_of_every_layout(products: Kernel, across: int, tile: Tile):
    of_a, of_b = ("halves_a", "halves_b") if across else ("halves_b", "halves_a")
    for name, tiles in ((of_a, (tile, DENSE[1 - across])), (of_b, (DENSE[1 - across], tile))):
        problem = Problem.of(FORMS[name], *tiles)
        assert (problem.run(products, name) == problem.want).all(), name
    for name in () if across else ("floats", "s8"):
        problem = Problem.of(FORMS[name], tile, tile)
        assert (problem.run(products, name) == problem.want).all(), name


# ---- Rules

ONE, HELD = FORMS["s8"], Form("f32", "f16", "f16", 8, True)
PRODUCT, READY, DONE = ONE.text(), f"{PROXY} {BARRIER} {FENCE}", f"{COMMIT} {WAIT}"
STORE = "st.shared.b32 [%to+-64512], %other;"  # into the tile of a
LEFT = "wgmma.wait_group.sync.aligned 1;"
UPPER = "setp.gt.u32 %p, %t, 63;"  # the upper two warps
#: steps of a block of 128 threads that keep the rules
KEPT = {
    "group": f"{READY} {PRODUCT} {PRODUCT} {DONE}",
    "groups": f"{READY} {PRODUCT} {COMMIT} {PRODUCT} {COMMIT} {LEFT} {WAIT}",
    "fenced_behind": f"{BARRIER} {PROXY} {FENCE} {PRODUCT} {DONE}",
    "again": f"{READY} {PRODUCT} {DONE} add.s32 %d0, %d0, 0; {FENCE} {PRODUCT} {DONE}",
    "beside": f"{READY} {PRODUCT} {COMMIT} add.s32 %e0, %e0, 1; {WAIT}",
    "elsewhere": f"{READY} {PRODUCT} {COMMIT} st.shared.b32 [%to+-16384], %e0; {WAIT}",
    "overwritten": f"{READY} {PRODUCT} {DONE} {BARRIER} {STORE}",
}
#: steps that break one, and the fault
BROKEN = {
    "sums read": (f"{READY} {PRODUCT} {COMMIT} mov.b32 %other, %d1; {WAIT}", "in_flight"),
    "sums written": (f"{READY} {PRODUCT} {COMMIT} mov.b32 %d1, 0; {WAIT}", "in_flight"),
    "sums of the group behind": (
        f"{READY} {PRODUCT} {COMMIT} {PRODUCT} {COMMIT} {LEFT} add.s32 %d0, %d0, 1; {WAIT}", "in_flight",
    ),
    "no commit": (f"{READY} {PRODUCT} {WAIT} add.s32 %d0, %d0, 1;", "in_flight"),
    "no wait": (f"{READY} {PRODUCT} {COMMIT} ret;", "in_flight"),
    "factors written": (f"{READY} {HELD.text()} {COMMIT} mov.b32 %a3, 0; {WAIT}", "in_flight"),
    "factors as sums": (f"{READY} {HELD.text()} {FENCE} {ONE.text('%a')} {DONE}", "in_flight"),
    "tile overwritten": (f"{READY} {PRODUCT} {COMMIT} {STORE} {WAIT}", "in_flight"),
    "no fence": (f"{PROXY} {BARRIER} {PRODUCT} {DONE}", "unfenced"),
    "fence too early": (f"{READY} add.s32 %d0, %d0, 1; {PRODUCT} {DONE}", "unfenced"),
    "fence in front of a read": (f"{READY} {PRODUCT} {DONE} mov.b32 %other, %d0; {PRODUCT} {DONE}", "unfenced"),
    "fence in front of factors": (f"{READY} mov.b32 %a0, 0; {HELD.text()} {DONE}", "unfenced"),
    "fence in front of another type": (f"{READY} {PRODUCT} {DONE} {HELD.text()} {DONE}", "unfenced"),
    "no proxy fence": (f"{BARRIER} {FENCE} {PRODUCT} {DONE}", "unfenced"),
    "no barrier": (f"{PROXY} {FENCE} {PRODUCT} {DONE}", "unordered"),
    "proxy fence of one thread": (
        f"setp.eq.u32 %p, %t, 127; @%p {PROXY} {BARRIER} {FENCE} {PRODUCT} {DONE}", "unfenced",
    ),
    "proxy fence too early": (f"{PROXY} {STORE} {BARRIER} {FENCE} {PRODUCT} {DONE}", "unfenced"),
    "two warps": (f"{READY} {UPPER} @%p bra past; {PRODUCT} {DONE} past:", "divergent"),
    "two warps, no wait": (f"{READY} {UPPER} @%p bra past; {PRODUCT} {COMMIT} past: ret;", "divergent"),
    "two places": (f"{READY} {UPPER} @%p bra other; {PRODUCT} other: {PRODUCT} {DONE}", "divergent"),
    "some lanes": (f"{READY} setp.gt.u32 %p, %t, 5; @%p bra past; {PRODUCT} past: {DONE}", "divergent"),
    "another descriptor": (f"{READY} {UPPER} @%p add.s64 %da, %da, 2; {PRODUCT} {DONE}", "invalid"),
    "another lane's descriptor": (
        f"{READY} setp.eq.u32 %p, %t, 5; @%p add.s64 %db, %db, 2; {PRODUCT} {DONE}", "invalid",
    ),
    "another scale-d": (f"{READY} {UPPER} not.pred %kept, %p; {PRODUCT} {DONE}", "invalid"),
    "reserved bits": (f"{READY} or.b64 %da, %da, 0x4000; {PRODUCT} {DONE}", "invalid"),
    "reserved bits above": (f"{READY} or.b64 %db, %db, 0x0010000000000000; {PRODUCT} {DONE}", "invalid"),
    "base offset without swizzle": (
        f"{READY} and.b64 %db, %db, 0x3FFFFFFFFFFFFFFF; or.b64 %db, %db, 0x0002000000000000; {PRODUCT} {DONE}",
        "invalid",
    ),
    "beyond": (f"{READY} or.b64 %db, %db, 0x3FF0; {PRODUCT} {DONE}", "out_of_bounds"),
}  # fmt: skip


def named(name: str) -> str:
    """A name as that of an entry."""
    return "".join(each if each.isalpha() else "_" for each in name)


@pytest.fixture(scope="module")
def rules() -> Kernel:
    """An entry for each of the steps that keep the rules, or break one."""
    texts = KEPT | {name: text for name, (text, _) in BROKEN.items()}
    return Kernel(HEAD + "".join(entry(named(name), ONE, text) for name, text in texts.items()))


@pytest.mark.parametrize("late", [False, True])
def test_kept_rules_are_no_faults(rules: Kernel, late: bool):
    problem = Problem.of(ONE, DENSE[0], DENSE[0])
    for name in KEPT:
        problem.run(rules, name, late=late)


@pytest.mark.parametrize("late", [False, True])
def test_broken_rules_are_faults(rules: Kernel, late: bool):
    problem = Problem.of(ONE, DENSE[0], DENSE[0])
    for name, (_, kind) in BROKEN.items():
        with pytest.raises(PtxFault) as found:
            problem.run(rules, named(name), late=late)
        assert str(found.value).startswith(f"{kind}: "), name


def test_a_warpgroup_has_four_warps(rules: Kernel):
    with pytest.raises(PtxFault, match=r"divergent: .* has not four warps"):
        Problem.of(ONE, DENSE[0], DENSE[0]).run(rules, "group", threads=96)


REFUSED = (
    replace(ONE, n=20), replace(ONE, n=40), replace(ONE, n=264), replace(HELD, d="s32"), replace(HELD, saturated=True),
    replace(HELD, b="bf16"), replace(HELD, signs=(2, 1)), replace(HELD, across=(0, 2)),
    replace(FORMS["brains"], d="f16"), replace(FORMS["floats"], b="bf16"),
)  # fmt: skip


def test_forms_that_the_manual_lacks_are_refused():
    texts = [entry("refused", form, steps(form)) for form in REFUSED]
    for text in ("wgmma.wait_group.sync.aligned 8;", PRODUCT.replace("%kept", "2"), PRODUCT.replace("%d1", "%d0")):
        texts.append(entry("refused", ONE, text))
    for text in texts:
        with pytest.raises(PtxError):
            translate(parse(HEAD + text))
    with pytest.raises(PtxError, match="on sm_90"):
        translate(parse(HEAD.replace("sm_90a", "sm_90") + entry("refused", ONE, steps(ONE))))
