"""Descriptors of tcgen05 as CUTLASS's headers encode them, as blackwell.cuh does, and as the toys do that the executor
reads. Needs the headers of the wheels nvidia-cutlass and nvidia-cuda-runtime-cu12, installed without dependencies."""

import ctypes
import importlib.util
import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import cupy
import numpy as np
import pytest

from gensor_kernels.devices.ptx.compile import ptx_of
from gensor_kernels.devices.ptx.execute import Memory, Module, Run
from gensor_kernels.families.core.source import SOURCES, bind, flatten
from tests.ptx.product_toys import TILES, Tile
from tests.ptx.umma_toys import Form, encoded


def _folder(module: str, *path: str) -> Path | None:
    found = importlib.util.find_spec(module)
    places = found.submodule_search_locations if found else ()
    return next((folder for each in places or () if (folder := Path(each, *path)).is_dir()), None)


CUTLASS, RUNTIME = _folder("cutlass_library", "source", "include"), _folder("nvidia", "cuda_runtime", "include")
THEIRS = "#include <cute/arch/mma_sm100_desc.hpp>"
STANDARD = Path(cupy.__file__).parent / "_core/include/cupy/_cccl/libcudacxx"

pytestmark = [
    pytest.mark.usefixtures("needs_emulator"),
    pytest.mark.skipif(not CUTLASS or not RUNTIME, reason="needs CUTLASS's headers and CUDA's"),
]

#: types of a and b: ours, CUTLASS's; d
TYPES = {
    "f16": ("half_t", "cutlass::half_t"), "bf16": ("bfloat16_t", "cutlass::bfloat16_t"),
    "tf32": ("float", "cutlass::tfloat32_t"), "s8": ("i8", "int8_t"), "u8": ("", "uint8_t"),
    "e4m3": ("e4m3_t", "cutlass::float_e4m3_t"), "e5m2": ("e5m2_t", "cutlass::float_e5m2_t"),
    "e2m3": ("", "cutlass::float_e2m3_t"), "e3m2": ("", "cutlass::float_e3m2_t"),
    "e2m1": ("", "cutlass::detail::float_e2m1_unpacksmem_t"), "e2m1x2": ("", "cutlass::float_e2m1_t"),
}  # fmt: skip
SUMS = {"f32": "float", "f16": "cutlass::half_t", "s32": "int32_t"}
PAIRS = (
    ("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32"), ("s8", "s8"), ("s8", "u8"), ("u8", "s8"), ("u8", "u8"),
    ("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2"), ("e2m3", "e3m2"), ("e2m1", "e2m3"),
)  # fmt: skip
FOURS = ("e2m1x2", "e2m1x2")
#: numbers of scales, whether they are powers of two, the first bytes of A's and B's, and types
SCALED = (
    *((1, True, first, pair) for pair in PAIRS[-6:] for first in ((0, 0), (2, 1), (3, 2))),
    *((2, True, first, FOURS) for first in ((0, 0), (2, 0), (0, 2))),
    *((4, powers, (0, 0), FOURS) for powers in (True, False)),
)


def forms() -> list[Form]:
    """All types, majors and columns; with some of them, other rows, signs and sums."""
    found = []
    for a, b in PAIRS:
        plain = Form("s32" if a in ("s8", "u8") else "f32", a, b, 128, 64)
        columns = range(16, 257, 16)
        found += [replace(plain, across=across, n=n) for across in itertools.product((0, 1), repeat=2) for n in columns]
        found += [replace(plain, m=64), replace(plain, m=256, blocks=2)]
        if plain.d == "s32":
            found.append(replace(plain, saturated=True))
        else:
            found += [replace(plain, signs=(-1, 1)), replace(plain, signs=(1, -1))]
    for scales, powers, first, (a, b) in SCALED:
        scaled = Form("f32", a, b, 128, 64, scales=scales, powers=powers, bytes=first)
        found += [scaled, replace(scaled, m=256, n=192, blocks=2), replace(scaled, n=72, signs=(-1, 1))]
    return [*found, replace(found[0], d="f16")]


def _theirs(form: Form) -> str:
    major, sign = ("cute::UMMA::Major::K", "cute::UMMA::Major::MN"), ("One", "Neg")
    given = [TYPES[form.a][1], TYPES[form.b][1], SUMS[form.d], str(form.m), str(form.n)]
    given += [major[each] for each in form.across]
    given += [f"cute::UMMA::ScaleIn::{sign[each < 0]}" for each in form.signs]
    if form.scales:
        given.insert(3, f"cutlass::float_ue{'8m0' if form.powers else '4m3'}_t")
        made = f"auto form = cute::UMMA::make_instr_desc_block_scaled<{', '.join(given)}>();"
        first = f"form.a_sf_id_ = {form.bytes[0]}; form.b_sf_id_ = {form.bytes[1]};"
        return f"[] {{ {made} {first} return (unsigned)form; }}()"
    given += [f"cute::UMMA::Saturate::{form.saturated}"]
    return f"(unsigned)cute::UMMA::make_instr_desc<{', '.join(given)}>()"


def _ours(form: Form) -> str:
    """An expression of blackwell_scales.cuh; 0 where it has none for the form."""
    types = [TYPES[each][0] for each in (form.a, form.b)]
    if form.signs != (1, 1) or form.saturated or form.d == "f16":
        return "0u"
    if form.scales:
        known = form.powers == (form.scales == 2) if form.a == "e2m1x2" else all(types)
        given = (form.m, form.n, *form.bytes, *(int(each == "e5m2") for each in (form.a, form.b)))
        return f"scaled_descriptor<{form.scales}>({', '.join(map(str, given))})" if known else "0u"
    return f"instruction_descriptor<{', '.join(types)}>{(form.m, form.n, *form.across)}" if all(types) else "0u"


SWIZZLES = ("NONE", "128B", "64B", "32B")


def _their_tile(tile: Tile) -> str:
    fields = {"start_address_": tile.start >> 4, "leading_byte_offset_": tile.leading >> 4, "version_": 1}
    fields |= {"stride_byte_offset_": tile.stride >> 4, "base_offset_": tile.pattern >> 7 & 7}
    fields |= {"layout_type_": f"(uint8_t)cute::UMMA::LayoutType::SWIZZLE_{SWIZZLES[tile.swizzle]}"}
    lines = "".join(f"tile.{name} = {value}; " for name, value in fields.items())
    return f"[] {{ cute::UMMA::SmemDescriptor tile; tile.desc_ = 0; {lines} return tile.desc_; }}()"


def _our_tile(tile: Tile) -> str:
    if tile.swizzle != 1 or tile.pattern:
        return "0ull"
    return f"tensor_descriptor(matrix_descriptor(sptr<u8>({tile.start}u), {tile.leading}, {tile.stride}))"


def _table(head: str, lines: list[str], kind: type[np.generic], *folders: Path | None) -> list[int]:
    """Return the values of expressions of CUDA C++."""
    stores = "".join(f"    out[{i}] = {line};\n" for i, line in enumerate(lines))
    word = "unsigned long long" if kind is np.uint64 else "unsigned"
    source = f'{head}\nextern "C" __global__ void table({word} *out) {{\n{stores}}}\n'
    out, memory = np.zeros(len(lines), kind), Memory()
    where = memory.place(out.ctypes.data, out.nbytes, True)
    options = ["-default-device", *(f"-I{each}" for each in folders)]
    module = Module(ptx_of(source, "sm_100a", more=options))
    module.execute(Run("table", (1, 1, 1), (1, 1, 1), bytes(ctypes.c_uint64(where))), memory)
    return out.tolist()


def _blackwell(folder: Path) -> str:
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return bind(flatten("blackwell_scales.cuh", folder), {})


def _compare(ours: list[int], theirs: list[int], toys: list[int]) -> None:
    assert toys == theirs
    assert sum(map(bool, ours)) > len(theirs) / 4
    assert [(ours[i], i) for i in range(len(ours)) if ours[i]] == [(theirs[i], i) for i in range(len(ours)) if ours[i]]


def test_instruction_descriptors(tmp_path: Path):
    cases = forms()
    theirs = _table(THEIRS, [_theirs(each) for each in cases], np.uint32, CUTLASS, RUNTIME, STANDARD)
    ours = _table(_blackwell(tmp_path), [_ours(each) for each in cases], np.uint32)
    _compare(ours, theirs, [each.descriptor for each in cases])


def test_matrix_descriptors(tmp_path: Path):
    tiles = [tile for _, tile in TILES]
    theirs = _table(THEIRS, [_their_tile(each) for each in tiles], np.uint64, CUTLASS, RUNTIME, STANDARD)
    ours = _table(_blackwell(tmp_path), [_our_tile(each) for each in tiles], np.uint64)
    _compare(ours, theirs, [encoded(each) for each in tiles])
