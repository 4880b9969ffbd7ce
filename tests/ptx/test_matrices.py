"""mma and ldmatrix of the executor: fragments as the manual's figures give them, element by element."""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from gensor_kernels.families.core.family import Launch
from gensor_kernels.operators.types.dtypes import encode, facts
from tests.ptx.execute import Kernel, Memory, PtxFault

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 shared[];\n"

#: element i of a lane's fragment -> (row, column), with group = lane >> 2 and place = lane % 4
Layout = Callable[[int, int, int], tuple[int, int]]


@dataclass(frozen=True)
class Form:
    """One mma: its suffix, shape, dtypes, elements per lane and layouts, in the words of the manual's sections."""

    suffix: str
    shape: tuple[int, int, int]
    a: tuple[int, Layout]
    b: tuple[int, Layout]
    factor: str
    total: str = "float32"
    factor_b: str = ""  # where it is another one


def c_16(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8), t * 2 + (i & 1)


def c_8(g: int, t: int, i: int) -> tuple[int, int]:
    return g, t * 2 + i


def half_16(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if 0 <= i < 2 or 4 <= i < 6 else g + 8), t * 2 + (i & 1) + (0 if i < 4 else 8)


def half_16_b(g: int, t: int, i: int) -> tuple[int, int]:
    return t * 2 + (i & 1) + (0 if i < 2 else 8), g


def half_8(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8), t * 2 + (i & 1)


def word_8(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i in (0, 2) else g + 8), (t if i in (0, 1) else t + 4)


def double_16(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i % 2 == 0 else g + 8), (i * 2 + t if i % 2 == 0 else i * 2 - 2 + t)


def byte_32(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if 0 <= i < 4 or 8 <= i < 12 else g + 8), t * 4 + (i & 3) + (0 if i < 8 else 16)


def byte_32_b(g: int, t: int, i: int) -> tuple[int, int]:
    return t * 4 + (i & 3) + (0 if i < 4 else 16), g


EIGHT_BIT = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
FORMS = [
    Form("m16n8k8.row.col.f32.f16.f16.f32", (16, 8, 8), (4, half_8), (2, lambda g, t, i: (t * 2 + i, g)), "float16"),
    Form("m16n8k16.row.col.f32.f16.f16.f32", (16, 8, 16), (8, half_16), (4, half_16_b), "float16"),
    Form("m16n8k16.row.col.f32.bf16.bf16.f32", (16, 8, 16), (8, half_16), (4, half_16_b), "bfloat16"),
    Form("m16n8k8.row.col.f32.tf32.tf32.f32", (16, 8, 8), (4, word_8), (2, lambda g, t, i: (t + 4 * i, g)), "float32"),
    Form(
        "m8n8k4.row.col.f64.f64.f64.f64", (8, 8, 4), (1, lambda g, t, i: (g, t)), (1, lambda g, t, i: (t, g)),
        "float64", "float64",
    ),
    Form(
        "m16n8k4.row.col.f64.f64.f64.f64", (16, 8, 4), (2, lambda g, t, i: (g + 8 * i, t)), (1, lambda g, t, i: (t, g)),
        "float64", "float64",
    ),
    Form(
        "m16n8k8.row.col.f64.f64.f64.f64", (16, 8, 8), (4, word_8), (2, lambda g, t, i: (t + 4 * i, g)),
        "float64", "float64",
    ),
    Form(
        "m16n8k16.row.col.f64.f64.f64.f64", (16, 8, 16), (8, double_16), (4, lambda g, t, i: (t + 4 * i, g)),
        "float64", "float64",
    ),
    Form(
        "m8n8k16.row.col.s32.s8.s8.s32", (8, 8, 16), (4, lambda g, t, i: (g, t * 4 + i)),
        (4, lambda g, t, i: (t * 4 + i, g)), "int8", "int32",
    ),
    Form(
        "m16n8k32.row.col.s32.s8.s8.s32", (16, 8, 32), (16, byte_32),
        (8, byte_32_b), "int8", "int32",
    ),
    *(
        Form(
            f"m16n8k32.row.col.f32.{a}.{b}.f32", (16, 8, 32), (16, byte_32), (8, byte_32_b), EIGHT_BIT[a],
            factor_b=EIGHT_BIT[b],
        )
        for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")
    ),
]  # fmt: skip


def registers(elements: int, size: int, dtype: str) -> int:
    """Return the number of registers of `size` bytes that hold the elements."""
    return elements * facts(dtype).itemsize // size


def product_entry(number: int, form: Form) -> str:
    """An entry that loads three fragments, multiplies, and stores the fragment of the result."""
    wide = form.factor == "float64"
    size, kind = (8, "f64") if wide else (4, "b32")
    total = {"float64": "f64", "float32": "f32", "int32": "b32"}[form.total]
    counts = [registers(form.a[0], size, form.factor), registers(form.b[0], size, form.factor), form.shape[0] // 4]
    kinds, loads, names, place = (kind, kind, total), "", [], 0
    for letter, count, each in zip("abc", counts, kinds, strict=True):
        names.append("{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}")
        loads += f".reg .{each} %{letter}<{count}>;\n"
        for i in range(count):
            loads += f"ld.global.{each} %{letter}{i}, [%in+{place}];\n"
            place += size
    stores = "".join(f"st.global.{total} [%out+{i * size}], %c{i};\n" for i in range(counts[2]))
    return f"""
.visible .entry product_{number}(.param .align 8 .b8 product_{number}_param_0[16])
{{
    .reg .b64 %out, %in; .reg .b32 %lane;
    ld.param.u64 %out, [product_{number}_param_0];
    ld.param.u64 %in, [product_{number}_param_0+8];
    mov.u32 %lane, %tid.x;
    mad.wide.u32 %in, %lane, {place}, %in;
    mad.wide.u32 %out, %lane, {counts[2] * size}, %out;
    {loads}
    mma.sync.aligned.{form.suffix} {names[2]}, {names[0]}, {names[1]}, {names[2]};
    {stores}
    ret;
}}
"""


def fragments(matrix: np.ndarray, count: int, layout: Layout) -> np.ndarray:
    """The elements of a matrix that each lane holds."""
    held = [[matrix[layout(lane >> 2, lane % 4, i)] for i in range(count)] for lane in range(32)]
    return np.array(held, matrix.dtype)


def run(kernel: Kernel, name: str, out: np.ndarray, source: np.ndarray) -> None:
    """Run an entry in one warp."""
    memory = Memory()
    places = [memory.place(each.ctypes.data, each.nbytes, each is out) for each in (out, source)]
    kernel.run([Launch(name, 1, 32, 1024)], struct.pack("<2Q", *places), memory, late=True, order="reverse")


def test_products_of_every_form():
    kernel = Kernel(HEAD + "".join(product_entry(n, form) for n, form in enumerate(FORMS)))
    rng = np.random.default_rng(5)
    for number, form in enumerate(FORMS):
        m, n, k = form.shape
        a, b, c = (rng.integers(-8, 8, shape) for shape in ((m, k), (k, n), (m, n)))  # sums are exact
        c_layout = c_16 if m == 16 else c_8
        parts = [
            fragments(encode(form.factor, a.astype(float)), *form.a),
            fragments(encode(form.factor_b or form.factor, b.astype(float)), *form.b),
            fragments(c.astype(form.total), m // 4, c_layout),
        ]
        source = np.concatenate([np.ascontiguousarray(part).view(np.uint8).reshape(32, -1) for part in parts], axis=1)
        out = np.zeros((32, m // 4), form.total)
        run(kernel, f"product_{number}", out, np.ascontiguousarray(source))
        assert (out == fragments((a @ b + c).astype(form.total), m // 4, c_layout)).all(), form.suffix


LOAD = """
.visible .entry load_{name}(.param .align 8 .b8 load_{name}_param_0[16])
{{
    .reg .b64 %out, %in; .reg .b32 %lane, %to, %r<8>;
    ld.param.u64 %out, [load_{name}_param_0];
    ld.param.u64 %in, [load_{name}_param_0+8];
    mov.u32 %lane, %tid.x;
    mad.wide.u32 %in, %lane, 16, %in;
    mad.wide.u32 %out, %lane, 16, %out;
    mov.u32 %to, shared;
    mad.lo.u32 %to, %lane, 16, %to;
    ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%in];
    st.shared.v4.u32 [%to], {{%r0, %r1, %r2, %r3}};
    bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r4, %r5, %r6, %r7}}, [%to];
    st.global.v4.u32 [%out], {{%r4, %r5, %r6, %r7}};
    ret;
}}
"""


def test_ldmatrix_gives_two_neighbours_of_a_row_to_each_lane():
    kernel = Kernel(HEAD + LOAD.format(name="rows", trans="") + LOAD.format(name="columns", trans=".trans"))
    source = np.arange(4 * 8 * 8, dtype=np.uint16).reshape(4, 8, 8)
    for name, matrices in (("rows", source), ("columns", source.transpose(0, 2, 1))):
        out = np.zeros((32, 4, 2), np.uint16)
        run(kernel, f"load_{name}", out, source)
        assert (out == matrices.reshape(4, 32, 2).transpose(1, 0, 2)).all(), name


ROW = """
.visible .entry rows(.param .align 8 .b8 rows_param_0[16])
{
    .reg .b32 %lane, %at, %r<2>; .reg .pred %used;
    mov.u32 %lane, %tid.x;
    mov.u32 %at, shared;
    setp.lt.u32 %used, %lane, 8;
    selp.b32 %at, %at, 0, %used;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%at];
    ret;
}
"""


def test_addresses_of_unused_lanes_count_on_sm_75():
    old = Kernel(HEAD.replace("sm_90a", "sm_75") + ROW)
    run(Kernel(HEAD + ROW), "rows", np.zeros(1), np.zeros(1))
    with pytest.raises(PtxFault, match="out_of_bounds: 16 bytes of shared memory"):
        run(old, "rows", np.zeros(1), np.zeros(1))
