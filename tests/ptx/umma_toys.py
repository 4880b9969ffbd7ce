"""Toys for products of tensor memory (tcgen05): their PTX, instruction descriptors, and the lanes of their sums."""

import struct
from dataclasses import dataclass, replace

import numpy as np

from gensor_kernels.families.core.family import Launch
from gensor_kernels.operators.types.dtypes import decode
from tests.ptx.execute import Kernel, Memory
from tests.ptx.product_toys import IMAGE, TYPES, Tile, bits_of, values

LANES, COLUMNS = 128, 256
HELD = 128  # the first column of a in tensor memory
HEAD = ".version 8.8\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 shared[];\n"
#: kind -> types of A and B with their codes
KINDS = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "i8": {"u8": 0, "s8": 1},
    "mxf4nvf4": {"e2m1x2": 1},
}
#: types of fewer bits: those of the exponent and of the fraction, and the numbers in 16 bytes of shared memory
NARROW = {"e2m3": (2, 3, 16), "e3m2": (3, 2, 16), "e2m1": (2, 1, 16), "e2m1x2": (2, 1, 32)}
#: where scales begin: in shared memory, of A and of B; in tensor memory
SCALES, SCALES_B, COLUMN_A, COLUMN_B = 20480, 21504, 200, 208
#: types of D with their codes
SUMS = {"f16": (0, "float16"), "f32": (1, "float32"), "s32": (2, "int32")}
#: a swizzle of a matrix descriptor of wgmma -> that of tcgen05
SWIZZLES = {0: 0, 1: 2, 2: 4, 3: 6}


@dataclass(frozen=True)
class Form:
    """A product: types of d, a and b, rows and columns, blocks, major axes and signs."""

    d: str
    a: str
    b: str
    m: int
    n: int
    blocks: int = 1
    held: bool = False  # a is in tensor memory
    across: tuple[int, int] = (0, 0)
    signs: tuple[int, int] = (1, 1)
    saturated: bool = False
    scales: int = 0  # of a row of 32 bytes
    bytes: tuple[int, int] = (0, 0)  # of a word of tensor memory, the first of A's and B's scales
    powers: bool = True  # scales are powers of two

    @property
    def kind(self) -> str:
        """The kind of the product, and the qualifiers of its scales."""
        kind = next(kind for kind, types in KINDS.items() if self.a in types)
        if not self.scales:
            return kind
        return f"{kind.replace('f8f6f4', 'mxf8f6f4')}.block_scale.scale_vec::{self.scales}X"

    @property
    def columns(self) -> int:
        """Columns of tensor memory that are filled before, and shown after the product."""
        return COLUMNS if self.held else self.n

    @property
    def k(self) -> int:
        """Elements of k."""
        return NARROW[self.a][2] * 2 if self.a in NARROW else TYPES[self.a][1]

    @property
    def entry(self) -> str:
        """The name of the entry that executes it."""
        return f"{self.kind.partition('.')[0]}_{self.blocks}{'_held' * self.held}{self.scales}"

    @property
    def descriptor(self) -> int:
        """The instruction descriptor, by the table of the manual."""
        codes = next(types for types in KINDS.values() if self.a in types)
        fields = [
            (7, codes[self.a]), (10, codes[self.b]), (13, self.signs[0] < 0), (14, self.signs[1] < 0),
            (15, self.across[0]), (16, self.across[1]), (17, self.n >> 3),
        ]  # fmt: skip
        if self.scales:
            fields += [(4, self.bytes[1]), (23, self.powers), (27, self.m >> 7), (29, self.bytes[0])]
        else:
            fields += [(3, self.saturated), (4, SUMS[self.d][0]), (24, self.m >> 4)]
        return sum(int(value) << bit for bit, value in fields)

    def product(
        self, a: np.ndarray, b: np.ndarray, scales: list[np.ndarray], d: np.ndarray, kind: np.dtype
    ) -> np.ndarray:
        """Return the sums of floats, with scales of blocks of k."""
        if self.a == "e2m1x2":
            return summed_fours(a, b, scales, d)
        if self.scales:
            a, b = a * scales[0], b * scales[1]
        return summed(a, b, d, kind)

    def place(self, row: int, column: int) -> tuple[int, int, int]:
        """Return (block, lane, column) of a sum, by the figures of the manual (layouts A, B, D and F)."""
        own = self.m // self.blocks
        block, row = row // own, row % own
        if own == 64 and self.blocks == 2:
            return block, row + column // (self.n // 2) * 64, column % (self.n // 2)
        return block, (row // 16 * 32 + row % 16 if own == 64 else row), column


def summed(a: np.ndarray, b: np.ndarray, d: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Return a @ b.T + d as a B200 sums it, by the papers that tensor_products.h names: aligned and truncated."""

    def exponent(x: np.ndarray) -> np.ndarray:
        return np.where(x == 0, -126, np.frexp(x)[1] - 1)

    most = (exponent(a)[:, None, :] + exponent(b)[None, :, :]).max(axis=2)
    unit = 2.0 ** (np.maximum(most, exponent(d)) - 25)
    total = unit * (np.trunc(d / unit) + np.trunc(a[:, None, :] * b[None, :, :] / unit[..., None]).sum(axis=2))
    near = total.astype(kind)
    beyond = (kind == np.float32) & (np.abs(near) > np.abs(total))
    return np.where(beyond, np.nextafter(near, kind.type(0)), near)


def summed_fours(a: np.ndarray, b: np.ndarray, scales: list[np.ndarray], d: np.ndarray) -> np.ndarray:
    """Return the sums of numbers of four bits with scales: of 16 products each, truncated 35 bits below the largest."""
    each = 64 // scales[0].shape[1]
    most, parts = np.where(d == 0, -126, np.frexp(d)[1] - 1), []
    for k in range(0, 64, 16):
        of_a, of_b = (scale[:, k // each] for scale in scales)
        exponents = [np.maximum(np.frexp(scale)[1] - 1, -6 if each == 16 else -127) for scale in (of_a, of_b)]
        most = np.maximum(most, exponents[0][:, None] + exponents[1][None, :])
        parts.append(a[:, k : k + 16] @ b[:, k : k + 16].T * of_a[:, None] * of_b[None, :])
    unit = 2.0 ** (most - 35)
    total = unit * sum(np.trunc(part / unit) for part in [d, *parts])
    near = total.astype(np.float32)
    return np.where(np.abs(near) > np.abs(total), np.nextafter(near, np.float32(0)), near)


def drawn(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of a type, and what is stored of them: of types below 8 bits, rows of 32 bytes."""
    if kind not in NARROW:
        numbers = values(rng, kind, shape)
        stored = bits_of(kind, numbers)
        # Bits that are cut off.
        return numbers, (stored.view(np.uint32) | 0x1FFF).view(np.float32) if kind == "tf32" else stored
    exponents, fractions, chunk = NARROW[kind]
    width = 1 + exponents + fractions
    codes = rng.integers(0, 2**width, shape).astype(np.uint8)
    stored, fraction = codes >> fractions & 2**exponents - 1, (codes & 2**fractions - 1) / 2**fractions
    numbers = (fraction + (stored > 0)) * 2.0 ** (np.maximum(stored, 1) - 2.0 ** (exponents - 1) + 1)
    bits = np.unpackbits(codes[:, :, None], axis=2, bitorder="little")[:, :, :width].reshape(-1, chunk * width)
    padded = np.pad(bits, ((0, 0), (0, 128 - chunk * width)))
    rows = np.packbits(padded, axis=1, bitorder="little").reshape(-1, 32)
    return np.where(codes >> (width - 1), -numbers, numbers), rows


def place_scales(image: np.ndarray, at: int, codes: np.ndarray, byte: int) -> None:
    """Store the scales of rows as copies to tensor memory expect them: 128 rows in 32 times 16 bytes."""
    for row, of_row in enumerate(codes):
        start = at + row // 128 * 512 + row % 32 * 16 + row % 128 // 32 * 4 + byte
        image[start : start + len(of_row)] = of_row


def encoded(tile: Tile) -> int:
    """Return the matrix descriptor of a tile for tcgen05, less the base of shared memory."""
    wide = tile.descriptor & ~(3 << 62)
    return wide | 1 << 46 | SWIZZLES[tile.swizzle] << 61


def entry(kind: str, blocks: int, held: bool = False) -> str:
    """An entry that fills shared and tensor memory, multiplies once, and stores what tensor memory then contains.

    It has 128 threads. The form of the product, but for its kind, and all data are in the source.
    """
    scales = int(kind[-2]) if "::" in kind else 0
    name, a = f"{kind.partition('.')[0]}_{blocks}{'_held' * held}{scales}", "[%a]" if held else "%da"
    copies, scaled = "", ""
    if scales:
        pieces = [(COLUMN_A, SCALES), (COLUMN_B, SCALES_B), (COLUMN_B + 4, SCALES_B + 512)]
        for column, at in pieces:
            copies += f"    add.s64 %mine, %base, {at >> 4 | 128 >> 4 << 32 | 1 << 46};\n"
            copies += f"    tcgen05.cp.cta_group::{blocks}.32x128b.warpx4 [%memory+{column}], %mine;\n"
        scaled = f"[%memory+{COLUMN_A}], [%memory+{COLUMN_B}], "
    cluster = f".reqnctapercluster {blocks}" if blocks > 1 else ""
    group = f"cta_group::{blocks}"
    both = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
    meet = "bar.sync 0;" if blocks == 1 else both
    commit = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
    commit += ".b64 [%bar];" if blocks == 1 else ".multicast::cluster.b64 [%bar], 3;"
    return f"""
.visible .entry {name}(.param .align 8 .b8 {name}_param_0[16]) {cluster}
{{
    .reg .b64 %out, %in, %from, %mine, %da, %db, %base;
    .reg .b32 %t, %to, %i, %w<4>, %d<8>, %form, %scale, %n, %memory, %bar, %hold, %quarter, %at, %rank, %warp, %a;
    .reg .pred %p, %kept, %one, %done, %first;
    ld.param.u64 %out, [{name}_param_0];
    ld.param.u64 %in, [{name}_param_0+8];
    mov.u32 %t, %tid.x;
    mov.u32 %rank, %cluster_ctarank;
    shr.u32 %warp, %t, 5;
    mov.u32 %to, shared;
    add.s32 %bar, %to, {IMAGE};
    add.s32 %hold, %to, {IMAGE + 16};
    shr.u32 %i, %to, 4;
    cvt.u64.u32 %base, %i;
    ld.global.b64 %da, [%in];
    ld.global.b64 %db, [%in+8];
    add.s64 %da, %da, %base;
    add.s64 %db, %db, %base;
    ld.global.b32 %form, [%in+16];
    ld.global.b32 %scale, [%in+20];
    ld.global.b32 %n, [%in+24];
    setp.ne.u32 %kept, %scale, 0;
    setp.eq.u32 %one, %t, 0;
    mad.wide.u32 %in, %rank, {IMAGE + LANES * COLUMNS * 4}, %in;
    mad.wide.u32 %out, %rank, {LANES * COLUMNS * 4}, %out;
    @%one mbarrier.init.shared::cta.b64 [%bar], 1;
    @%one fence.mbarrier_init.release.cluster;
    setp.ne.u32 %first, %warp, 0;
    @%first bra allocated;
    tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%hold], {COLUMNS};
    tcgen05.relinquish_alloc_permit.{group}.sync.aligned;
allocated:
    bar.sync 0;
    ld.shared.b32 %memory, [%hold];
    add.s32 %a, %memory, {HELD};
    shl.b32 %quarter, %warp, 21;
    add.s32 %at, %memory, %quarter;
    mad.lo.u32 %to, %t, 16, %to;
    mad.wide.u32 %from, %t, 16, %in;
    mov.u32 %i, 0;
again:
    ld.global.v4.b32 {{%w0, %w1, %w2, %w3}}, [%from+32];
    st.shared.v4.b32 [%to], {{%w0, %w1, %w2, %w3}};
    add.s64 %from, %from, 2048;
    add.s32 %to, %to, 2048;
    add.s32 %i, %i, 2048;
    setp.lt.u32 %p, %i, {IMAGE};
    @%p bra again;
    mad.wide.u32 %mine, %t, {COLUMNS * 4}, %in;
    mov.u32 %i, 0;
fill:
    ld.global.v4.b32 {{%d0, %d1, %d2, %d3}}, [%mine+{IMAGE + 32}];
    ld.global.v4.b32 {{%d4, %d5, %d6, %d7}}, [%mine+{IMAGE + 48}];
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%at], {{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}};
    add.s64 %mine, %mine, 32;
    add.s32 %at, %at, 8;
    add.s32 %i, %i, 8;
    setp.lt.u32 %p, %i, %n;
    @%p bra fill;
    tcgen05.wait::st.sync.aligned;
    fence.proxy.async.shared::cta;
    tcgen05.fence::before_thread_sync;
    {meet}
    tcgen05.fence::after_thread_sync;
    add.s32 %i, %t, %rank;
    setp.ne.u32 %p, %i, 0;
    @%p bra issued;
{copies}
    tcgen05.mma.{group}.kind::{kind} [%memory], {a}, %db, %form, {scaled}%kept;
    {commit}
issued:
    mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0;
    @!%done bra issued;
    tcgen05.fence::after_thread_sync; // before loads
    add.s32 %at, %memory, %quarter;
    mad.wide.u32 %mine, %t, {COLUMNS * 4}, %out;
    mov.u32 %i, 0;
show:
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}}, [%at];
    tcgen05.wait::ld.sync.aligned;
    st.global.v4.b32 [%mine], {{%d0, %d1, %d2, %d3}};
    st.global.v4.b32 [%mine+16], {{%d4, %d5, %d6, %d7}};
    add.s64 %mine, %mine, 32;
    add.s32 %at, %at, 8;
    add.s32 %i, %i, 8;
    setp.lt.u32 %p, %i, %n;
    @%p bra show;
    {meet}
    @%first bra freed;
    tcgen05.dealloc.{group}.sync.aligned.b32 %memory, {COLUMNS};
freed:
    ret;
}}
"""


@dataclass
class Problem:
    """The input of an entry, what tensor memory contains before, and what a product must leave of it."""

    form: Form
    source: np.ndarray
    want: np.ndarray

    @classmethod
    def of(cls, form: Form, tile_a: Tile, tile_b: Tile, *, kept: bool = True, apart: float = 1) -> "Problem":
        """Random matrices in these tiles, B 32 KiB after A; d has multiples of `apart`, as near as its type does."""
        rng = np.random.default_rng(3)
        (a, stored_a), (b, stored_b) = (
            drawn(rng, kind, (extent, form.k)) for kind, extent in ((form.a, form.m), (form.b, form.n))
        )
        kind = np.dtype(SUMS[form.d][1])
        d = (rng.integers(-64, 65, (form.m, form.n)) * apart).astype(kind).astype(float)
        if form.saturated:
            d = d + np.where(d > 0, 2**31 - 65, 64 - 2**31)
        behind = replace(tile_b, start=tile_b.start + 32768)
        header = struct.pack("<2Q3I4x", encoded(tile_a), encoded(behind), form.descriptor, kept, form.columns)
        parts = [np.frombuffer(header, np.uint8)]
        shape = (form.blocks, LANES, COLUMNS)
        before, want = (np.full(shape, 0x40404040, np.uint32) for _ in range(2))
        low, high = (120, 134) if form.powers else (1, 0x7F)
        codes = [rng.integers(low, high, (extent, form.scales)).astype(np.uint8) for extent in (form.m, form.n)]
        scales = [2.0 ** (each - 127.0) if form.powers else decode("float8_e4m3fn", each) for each in codes]
        signs = form.signs[0] * form.signs[1]
        if form.d == "s32":
            product = a @ b.T * signs + (d if kept else 0)
        else:
            product = form.product(a.astype(float) * signs, b.astype(float), scales, d * kept, kind)
        if form.saturated:
            product = product.clip(-(2**31), 2**31 - 1)
        places = tuple(np.array([form.place(*at) for at in np.ndindex(form.m, form.n)]).T)
        word = np.uint16 if form.d == "f16" else np.uint32
        before[places] = d.astype(kind).view(word).reshape(-1)
        want[places] = product.astype(kind).view(word).reshape(-1) | np.uint32(0xFFFF0000 if form.d == "f16" else 0)
        for block in range(form.blocks):
            image = rng.integers(0, 256, IMAGE).astype(np.uint8)
            mine = [
                each[len(each) // form.blocks * block :][: len(each) // form.blocks] for each in (stored_a, stored_b)
            ]
            if form.held:
                before[block, :, HELD : HELD + 8] = want[block, :, HELD : HELD + 8] = mine[0].view(np.uint32)
            else:
                tile_a.place(image, mine[0], form.across[0])
            behind.place(image, mine[1], form.across[1])
            if form.scales:
                place_scales(image, SCALES, codes[0][128 * block :][:128], form.bytes[0])
                place_scales(image, SCALES_B, codes[1], form.bytes[1])
            parts += [image, before[block].view(np.uint8).reshape(-1)]
        return cls(form, np.concatenate(parts), want[:, :, : form.columns])

    def run(self, kernel: Kernel, *, late: bool = True, order: str | int = 0, name: str = "") -> np.ndarray:
        """Run an entry, by default that of the form; return the words of tensor memory by block, lane and column."""
        out = np.zeros((self.form.blocks, LANES, COLUMNS), np.uint32)
        memory = Memory()
        places = [memory.place(each.ctypes.data, each.nbytes, each is out) for each in (out, self.source)]
        launch = Launch(name or self.form.entry, self.form.blocks, 128, IMAGE + 64, cluster=self.form.blocks)
        kernel.run([launch], struct.pack("<2Q", *places), memory, late=late, order=order, ordered=True)
        return out[:, :, : self.form.columns]
