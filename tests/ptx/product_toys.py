"""Toys for products of warpgroups (wgmma): their PTX, tiles by the canonical layouts of the manual, fragments."""

import struct
from dataclasses import dataclass, replace

import numpy as np

from gensor_kernels.families.core.family import Launch
from gensor_kernels.operators.types.dtypes import encode
from tests.ptx.execute import Kernel, Memory

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 shared[];\n"
IMAGE = 65536  # bytes of shared memory
#: names in PTX -> dtype, elements of k in a product
TYPES = {
    "f16": ("float16", 16),
    "bf16": ("bfloat16", 16),
    "tf32": ("float32", 8),
    "e4m3": ("float8_e4m3fn", 32),
    "e5m2": ("float8_e5m2", 32),
    "s8": ("int8", 32),
    "u8": ("uint8", 32),
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
        return TYPES[self.a][1]

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
    """Layout of a matrix in shared memory: the start and both offsets in bytes, the swizzle, the pattern's start."""

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
    """The input of an entry, d as each thread has it, and what a product must leave of it."""

    source: np.ndarray
    before: np.ndarray
    want: np.ndarray

    @classmethod
    def of(cls, form: Form, tile_a: Tile, tile_b: Tile, *, kept: bool = True, apart: float = 1) -> "Problem":
        """Random matrices in these tiles, B 32 KiB after A; d has multiples of `apart`, as near as its type does."""
        rng = np.random.default_rng(3)
        a, b = values(rng, form.a, (64, form.k)), values(rng, form.b, (form.n, form.k))
        sum_type = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[form.d]
        d = (rng.integers(-64, 65, (64, form.n)) * apart).astype(sum_type).astype(float)
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
        header = struct.pack("<2QI12x", tile_a.descriptor, behind.descriptor, kept)
        before = accumulators(form, d.astype(sum_type))
        mine = np.concatenate([fragments(stored), before], axis=1)
        source = np.concatenate([np.frombuffer(header, np.uint8), image, mine.reshape(-1)])
        product = 0.0 + a.astype(float) @ b.T.astype(float) * form.signs[0] * form.signs[1] + (d if kept else 0)
        if form.saturated:
            product = product.clip(-(2**31), 2**31 - 1)
        return cls(source, before, accumulators(form, product.astype(sum_type)))

    def run(
        self, kernel: Kernel, name: str, *, late: bool = True, order: str | int = 0, threads: int = 128
    ) -> np.ndarray:
        """Run an entry; return the bytes it leaves for each thread."""
        out = np.zeros_like(self.want)
        memory = Memory()
        places = [memory.place(each.ctypes.data, each.nbytes, each is out) for each in (out, self.source)]
        kernel.run([Launch(name, 1, threads, IMAGE)], struct.pack("<2Q", *places), memory, late=late, order=order)
        return out
