"""Products of tensor memory (tcgen05) in the executor: kinds, types, layouts, shapes and pairs of blocks."""

import functools
from dataclasses import replace

import pytest

from tests.ptx.execute import Kernel
from tests.ptx.product_toys import DENSE
from tests.ptx.umma_toys import HEAD, Form, Problem, entry, kind_of

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
    "u8": Form("s32", "u8", "u8", 128, 32, saturated=True),
}  # fmt: skip


@functools.cache
def _kernel(kind: str, blocks: int) -> Kernel:
    return Kernel(HEAD + entry(kind, blocks))


def kernel_of(form: Form) -> Kernel:
    """Return the entry of a form's kind and blocks."""
    return _kernel(kind_of(form.a), form.blocks)


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
