"""Products of warpgroups (wgmma) in the executor: every type, layout and swizzle of the manual; rules broken."""

from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.devices.ptx.translation.parse import PtxError, parse
from gensor_kernels.devices.ptx.translation.translate import translate
from tests.ptx.execute import Kernel, PtxFault
from tests.ptx.product_toys import (
    BARRIER,
    COMMIT,
    DENSE,
    FENCE,
    HEAD,
    PROXY,
    TILES,
    WAIT,
    Form,
    Problem,
    Tile,
    entry,
    steps,
)

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++

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


def test_a_sum_is_rounded_once(products: Kernel):
    for name in ("halves", "halves_held", "floats", "e4m3_e5m2"):
        problem = Problem.of(FORMS[name], DENSE[0], DENSE[0], apart=1 / 3)
        assert (problem.run(products, name) == problem.want).all(), name


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
#: steps that break one, and the fault; tests/ptx/rules has further ones, each next to a twin that keeps the rule
BROKEN = {
    "sums written": (f"{READY} {PRODUCT} {COMMIT} mov.b32 %d1, 0; {WAIT}", "in_flight"),
    "sums of the group behind": (
        f"{READY} {PRODUCT} {COMMIT} {PRODUCT} {COMMIT} {LEFT} add.s32 %d0, %d0, 1; {WAIT}", "in_flight",
    ),
    "no wait": (f"{READY} {PRODUCT} {COMMIT} ret;", "in_flight"),
    "factors written": (f"{READY} {HELD.text()} {COMMIT} mov.b32 %a3, 0; {WAIT}", "in_flight"),
    "factors as sums": (f"{READY} {HELD.text()} {FENCE} {ONE.text('%a')} {DONE}", "in_flight"),
    "fence too early": (f"{READY} add.s32 %d0, %d0, 1; {PRODUCT} {DONE}", "unfenced"),
    "fence in front of a read": (f"{READY} {PRODUCT} {DONE} mov.b32 %other, %d0; {PRODUCT} {DONE}", "unfenced"),
    "fence in front of factors": (f"{READY} mov.b32 %a0, 0; {HELD.text()} {DONE}", "unfenced"),
    "fence in front of another type": (f"{READY} {PRODUCT} {DONE} {HELD.text()} {DONE}", "unfenced"),
    "proxy fence of one thread": (
        f"setp.eq.u32 %p, %t, 127; @%p {PROXY} {BARRIER} {FENCE} {PRODUCT} {DONE}", "unfenced",
    ),
    "proxy fence too early": (f"{PROXY} {STORE} {BARRIER} {FENCE} {PRODUCT} {DONE}", "unfenced"),
    "two warps, no wait": (f"{READY} {UPPER} @%p bra past; {PRODUCT} {COMMIT} past: ret;", "divergent"),
    "two places": (f"{READY} {UPPER} @%p bra other; {PRODUCT} other: {PRODUCT} {DONE}", "divergent"),
    "some lanes": (f"{READY} setp.gt.u32 %p, %t, 5; @%p bra past; {PRODUCT} past: {DONE}", "divergent"),
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
}  # fmt: skip


def entry_name(name: str) -> str:
    """A name as that of an entry."""
    return "".join(each if each.isalpha() else "_" for each in name)


@pytest.fixture(scope="module")
def rules() -> Kernel:
    """An entry for each of the steps that keep the rules, or break one."""
    texts = KEPT | {name: text for name, (text, _) in BROKEN.items()}
    return Kernel(HEAD + "".join(entry(entry_name(name), ONE, text) for name, text in texts.items()))


@pytest.mark.parametrize("late", [False, True])
def test_kept_rules_are_no_faults(rules: Kernel, late: bool):
    problem = Problem.of(ONE, DENSE[0], DENSE[0])
    once, before = (each.view(np.int32) for each in (problem.want, problem.before))
    for name, text in KEPT.items():
        found = problem.run(rules, name, late=late).view(np.int32)
        assert (found == before + text.count(PRODUCT) * (once - before)).all(), name


@pytest.mark.parametrize("late", [False, True])
def test_broken_rules_are_faults(rules: Kernel, late: bool):
    problem = Problem.of(ONE, DENSE[0], DENSE[0])
    for name, (_, kind) in BROKEN.items():
        with pytest.raises(PtxFault) as found:
            problem.run(rules, entry_name(name), late=late)
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
