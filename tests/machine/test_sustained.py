"""Predicted times claim no more than the best published rate: the potential knows it, reports of older records too."""

import json
from dataclasses import replace

import numpy as np
import pytest

import gensor_kernels
from gensor_database import PRETUNED, Record, Store, duration
from gensor_kernels import explain, matmul
from gensor_kernels.families.space import Space
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import SUSTAINED, archs, lookup
from gensor_kernels.operators.products import matmul as operator
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.report import contents
from gensor_tuner.run.result import Result, Table, _from_entry, summary, totals
from gensor_tuner.shapes.reader import Row
from gensor_tuner.store.show import record_lines, records
from tests.doubles.store_rows import kernel_rows, rows

H100 = lookup("h100-sxm")
FLOPS = 2 * 8192**3
LEAST = FLOPS / 808e12 * 1e6  # microseconds at fast.cu's 808 TFLOP/s
LARGE = operator.workload(8192, 8192, 8192, dtype="bfloat16")
SMALL = operator.workload(64, 64, 64, dtype="bfloat16")


def test_a_sustained_rate_is_below_the_peak_of_its_part():
    kinds = {"f8": "float8", "f16": "float16", "tf32": "tf32", "s8": "int8"}
    assert set(kinds) == set(SUSTAINED)
    found = [(arch, name) for arch in archs() for name in arch.sustained]
    assert {arch.part for arch, _ in found} >= {"h100-sxm", "h200", "a100-40gb", "b200"}
    for arch, name in found:
        reached, peak = arch.peak(kinds[name], sustained=True), arch.peak(kinds[name])
        assert reached == pytest.approx(arch.sustained[name] * 1e12) and 0.6 * peak < reached < peak, (arch.part, name)


def test_the_bound_is_the_hardwares_and_other_types_lose_as_their_like():
    assert roofline.sustained_us(LARGE, H100) == pytest.approx(LEAST)
    assert roofline.bound_us(LARGE, H100) == pytest.approx(FLOPS / 989e12 * 1e6, rel=0.01)
    single = operator.workload(8192, 8192, 8192, dtype="float32", math="tf32")
    assert roofline.sustained_us(single, H100) == pytest.approx(2 * LEAST)
    assert roofline.bound_us(single, H100) == pytest.approx(FLOPS / 494.7e12 * 1e6, rel=0.01)
    double = operator.workload(8192, 8192, 8192, dtype="float64")
    assert roofline.sustained_us(double, H100) == pytest.approx(roofline.bound_us(double, H100))
    assert roofline.sustained_us(LARGE, lookup("rtx-4090")) == 0
    # Six products of bfloat16 for one of float32 are slowed as such.
    assert H100.fastest("float32", sustained=True) == pytest.approx(808e12 / 6)


def test_explain_claims_no_more_than_was_published(no_databases):
    n = 16384
    least = 2 * n**3 / 808e12 * 1e6
    a = np.lib.stride_tricks.as_strided(np.zeros(8, np.float16), (n, n), (2 * n, 2), writeable=False)
    with gensor_kernels.emulated("sm_90"):
        why = explain(matmul, a, a)
        small = explain(matmul, a[:64, :64], a[:64, :64])
    space = Space(operator.workload(n, n, n, dtype="float16"), replace(H100, sustained={})).family(why.program.family)
    unlimited = float(space.potential(space.point(why.program)[None])[0]) * 1e6
    assert max(least, 1.05 * unlimited) < why.predicted_us and small.predicted_us < 10


def result(workload, predicted_us):
    """A row that was tuned."""
    least, bound = roofline.sustained_us(workload, H100), roofline.bound_us(workload, H100)
    return Result(workload, "ok", "k", "f", {}, predicted_us, bound, sustained_us=least)


def test_tables_of_tune_tell_the_same():
    row, large, small = Row(1, "8192x8192x8192", 1, LARGE), result(LARGE, 1200.0), result(SMALL, 4.5)
    table = Table([row])
    assert duration(LEAST) in table.line(row, large) and duration(1200.0) not in table.line(row, large)
    assert "4.5 µs" in table.line(row, small)
    assert totals([(row, large), (row, small)], "m")[0].startswith(f"m: 2 calls take {duration(LEAST + 4.5)} (")
    assert f"worst {max(LEAST / large.bound_us, 4.5 / small.bound_us):.2f}" in summary([large, small])[-1]


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "a.db") as found:
        found.add(*rows(1))
        digest = kernel_rows(1)[1].digest
        bound = roofline.bound_us(LARGE, H100)
        found.add(Record(LARGE.key(), "sm_90", "h100-sxm", 2, digest, 1200.0, bound, "ok"))
        found.add(Record(LARGE.key(), "sm_90", "a-part-of-another-version", 2, digest, 1200.0, bound, "ok"))
        yield found


def test_show_and_the_report_tell_it_and_keep_the_data(store):
    table = [line for line in record_lines(store, "sm_90", False) if "8192" in line]
    assert duration(LEAST) in next(line for line in table if "h100-sxm" in line)
    assert duration(1200.0) in next(line for line in table if "a-part-of" in line)
    assert {each["predicted_us"] for each in records(store, "sm_90")} == {1200.0}
    assert {json.loads(line)["predicted_us"] for line in record_lines(store, "sm_90", True)} == {1200.0}
    parts = {part.name: part for part in contents.parts(store, "sm_90")}
    (line,) = parts["h100-sxm"].lines
    assert line.predicted_us == line.time_us == pytest.approx(LEAST) and line.record.predicted_us == 1200.0
    (line,) = parts["a-part-of-another-version"].lines
    assert line.predicted_us == 1200.0


def test_power_slows_programs_as_far_as_their_math_is_busy_and_changes_no_order():
    space, bare = Space(LARGE, H100), Space(LARGE, replace(H100, sustained={}))
    slowed = 0
    for family, cool in zip(space.families, bare.families, strict=True):
        points = np.array([family.point(program) for program in family.family.starters(LARGE, H100)])
        own, same = family.potential(points), cool.potential(points)
        assert (np.argsort(own) == np.argsort(same)).all(), family.family.name
        if family.family.name in ("contraction_wgmma", "contraction_mma"):
            assert (own > same).all() and (own >= LEAST * 1e-6).all()
            assert (own / same).argmax() == same.argmin(), "the fastest draws most power"
            slowed += 1
        if family.family.name == "contraction_simt":
            assert (own == same).all(), "no tensor core is busy"
    assert slowed == 2


def test_the_share_of_the_clock_that_power_takes():
    assert H100.heat("peak_f16") == pytest.approx(1 - 808 / 989.4, abs=0.001)
    assert H100.heat("mma_f16") == pytest.approx(H100.heat("peak_f16") * 1290 / 2048)
    assert H100.heat("peak_tf32") == H100.heat("peak_f16"), "no rate of TF32 is published"
    assert H100.heat("peak_s8") == H100.heat("peak_f8") > H100.heat("peak_f16")
    assert {H100.heat("fma_f32"), H100.heat("mma_f64"), lookup("rtx-4090").heat("mma_f16")} == {0.0}


def test_results_of_stored_kernels_carry_it():
    with Store.open(PRETUNED / "sm_90.db", readonly=True) as shipped:
        record = next(each for each in shipped.rows(Record, outcome="ok") if '"dtypes":{"a":"bfloat16"' in each.key)
        workload = Workload.from_json(record.key)
        found = _from_entry(shipped.find(record.key, record.arch, record.part), workload, H100)
    assert found.sustained_us == roofline.sustained_us(workload, H100) > 0
