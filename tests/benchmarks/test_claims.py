"""The step `claims`: its rows, the kernels of a row, and what a wrong kernel costs."""

import math
import re
from dataclasses import replace
from functools import partial
from unittest import mock

import pytest

from benchmarks.gpu import claims, fault_injection, shipped, timing
from benchmarks.gpu.kernels import real_size
from gensor_database.record import Kernel, Timing, Verification
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.attention.forms import FORMS
from gensor_kernels.operators.products import matmul
from gensor_tuner.build.pool import candidate
from tests.doubles.store_rows import add_rows

from .stored_kernel import stored_kernel
from .test_gpu_paths import ends, gpu, short_rounds

__all__ = ["gpu"]

HOPPER = lookup("h200")
ROWS = claims.claims()


def claim(name):
    return next(each for each in ROWS if each.name == name)


def test_rows_have_names_and_cover_what_machine_code_cannot_settle():
    names = [each.name for each in ROWS]
    assert len(set(names)) == len(names) and set(claims.REHEARSED) <= set(names)
    forms = {FORMS[each.workload.operator] for each in ROWS if each.workload.operator in FORMS}
    shown = {(form.ragged, form.paged, form.windowed, form.capped) for form in forms}
    assert {(1, 1), (0, 1)} <= {form[:2] for form in shown} and {(1, 0), (1, 1)} <= {form[2:] for form in shown}
    kinds = {(each.workload.dtype["a"], each.workload.math) for each in ROWS if each.workload.operator == "matmul"}
    assert kinds >= {("float8_e4m3fn", "ieee"), ("float32", "tf32"), ("float16", "ieee"), ("int8", "ieee")}
    assert sum(each.published_us is not None for each in ROWS) == 18
    assert {"cublaslt", "torch"} <= set(claims.vendors_of(claim("int8_4096").workload)) < {*claims.EAGER}
    assert "cupy" not in claims.vendors_of(claim("int8_4096").workload)
    assert claims.vendors_of(claim("fp16_4096").workload) == [*claims.EAGER]


def test_claims_to_time_again_come_first_and_are_chosen_alone():
    first = [each.name for each in ROWS if each.row.notes.get("again")]
    assert first == [each.name for each in ROWS[: len(first)]] and first[0] == "tf32_4096"
    chosen = [each.name for each in ROWS if re.search(claims.again(), f"0123456789abcdef {each.name} stored window")]
    assert chosen == first


@pytest.mark.parametrize("name", [each.name for each in ROWS if each.vary])
def test_coordinates_that_vary_are_those_of_a_family_that_serves_the_row(name):
    each = claim(name)
    own = set()
    for served in Space(each.workload, HOPPER).families:
        own |= {coordinate.name for coordinate in served.family.coordinates(each.workload, HOPPER)}
    assert set(each.vary) <= own


def test_a_variant_differs_in_one_choice(gpu):
    gpu.device.arch = HOPPER
    each = claim("fp16_4096")
    family = Space(each.workload, HOPPER).family("contraction_wgmma").family
    for program in family.starters(each.workload, HOPPER)[:3]:
        best = candidate(family, program, each.workload)
        found = claims.vary(gpu, each, best)
        assert {how.partition("=")[0] for how in found.values()} >= {"stream", "persistent", "epilogue_staged"}
        for other, how in found.items():
            name, _, value = how.partition("=")
            assert other.program[name] == int(value) != best.program[name]
            may = {name, *claims.FOLLOWING, *(claims.TOGETHER.get(name, {}) if int(value) else {})}
            assert {key for key, old in best.program.values if other.program[key] != old} <= may
            if name == "stream" and int(value):
                assert (other.program["persistent"], other.program["cluster"], other.program["split_k"]) == (1, 0, 1)


FILE = "name,op,dtype,m,n,k,vary,published_us\nproduct,matmul,fp16,72,48,40,stages,2.5\nnone,matmul,fp16,40,40,40,,\n"


@pytest.fixture
def few(gpu, monkeypatch, tmp_path):
    """A run over two rows; the database has a kernel of the first one."""
    path = tmp_path / "claims.csv"
    path.write_text(FILE)
    monkeypatch.setattr(claims, "claims", lambda real=claims.claims: real(path))
    monkeypatch.setattr(claims, "fill", lambda session, *more: shipped.fill(session, lambda *given: []))
    gpu.db = gpu.out / "kernels.db"
    add_rows(gpu.db, *stored_kernel(matmul.workload(72, 48, 40)))
    short_rounds(monkeypatch, timing)
    return gpu


def test_a_wrong_kernel_costs_itself_and_the_others_are_timed(few, monkeypatch):
    monkeypatch.setattr(claims, "_starters", lambda *given: iter(()))
    cut = partial(fault_injection._add, fault_injection.K_EXTENT, -16)

    def check(session, noise, found, *more, seconds):
        damaged = cut if found.program["stages"] == 2 else None
        return real_size.check(session, noise, found, *more, damaged, seconds=seconds)

    monkeypatch.setattr(shipped, "check", check)
    few.only = "^(kernels of|.*product)"
    assert few.work("claims", claims.items(few)) == 0
    found = ends(few, "claims")
    made = found["product: kernels"]["kernels"]
    bad, other, stored = sorted(made.values())
    assert (bad, stored) == ("stages=2", "stored contraction_mma") and other.startswith("stages=")
    outcomes = {how: found[f"{digest[:16]} product {how}"]["outcome"] for digest, how in made.items()}
    assert outcomes == {bad: "wrong", other: "ok", stored: "ok"}
    times, right = found["product: times"], {digest for digest, how in made.items() if how != bad}
    assert times["outcome"] == "ok" and times["claim"] == "product" and times["published_us"] == 2.5
    assert set(times["kernels"]) == right and sorted(times["what"]) == [other, stored]
    assert times["vendors_us"]["cupy"] > 0 and all(0 < worst <= 1 for worst in times["worst"])
    assert shipped.rejected_kernels(few) >= {digest[:16] for digest in made if digest not in right}
    assert not shipped.rejected_kernels(few) & {digest[:16] for digest in right}
    with few.store() as store:
        assert {row.kernel_digest for row in store.rows(Verification)} == set(made)
        assert {row.kernel_digest for row in store.rows(Timing) if row.kernel_digest} == right
        assert {row.digest for row in store.rows(Kernel)} == set(made)
    before = few.journal.path.read_text().count('"end"')
    assert few.work("claims", claims.items(few)) == 0  # nothing again but the look into the database
    assert few.journal.path.read_text().count('"end"') == before + 1


def test_families_without_a_stored_kernel_have_a_default_program_and_rows_without_a_record_are_tuned(few, monkeypatch):
    (product, _) = claims.claims()
    shipped.fill(few, lambda *given: [])
    monkeypatch.setattr(claims, "FAR", math.inf)
    found = claims.gather(few, product)
    assert {"stored contraction_mma", "default contraction_simt"} <= set(found["kernels"].values())
    assert found["families"]["contraction_mma"] is None and "warpgroup" in found["families"]["contraction_wgmma"]
    monkeypatch.setattr(claims, "FAR", 1.0)
    assert "default contraction_simt" not in claims.gather(few, product)["kernels"].values()
    rows = claims.claims()
    with few.store() as store:
        shipped.given(few, store)
        assert [row.name for row in claims.lacking(rows, few, store)] == ["none"]


def test_a_row_that_no_family_serves_or_whose_kernels_cannot_be_compiled_is_left_out(few, monkeypatch):
    (product, _), real = claims.claims(), claims.compile_many
    with monkeypatch.context() as patch:
        patch.setattr(claims, "Space", mock.Mock(side_effect=claims.UnsupportedError("nobody")))
        assert claims.gather(few, product) == {"outcome": "skipped", "reason": "nobody"}

    def refusing(requests, jobs):
        return [replace(each, error="no such instruction") for each in real(requests, jobs)]

    monkeypatch.setattr(claims, "compile_many", refusing)
    monkeypatch.setattr(claims, "best_stored", lambda *given: [])
    assert few.work("claims", claims.items(few)) == 0
    found = ends(few, "claims")
    assert [found[f"{name}: kernels"]["outcome"] for name in ("product", "none")] == ["failed", "failed"]
    assert not any(item.endswith("times") for item in found)
