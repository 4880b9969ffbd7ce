"""benchmarks.ranking: its statistics, the command, refused files, and the measured spaces, if present."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ranking
from benchmarks.spaces import correlation, measured_space
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import archs, lookup

from . import spaces
from .spaces import write_space

MEASURED = Path(__file__).resolve().parents[3] / "shared" / "measured"


# ---- statistics


def test_kendall_counts_pairs(monkeypatch):
    monkeypatch.setattr(correlation, "CHUNK", 7)
    x, y = np.random.default_rng(0).integers(0, 12, (2, 40)).astype(float)
    pairs = list(itertools.combinations(range(40), 2))
    signs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in pairs]
    apart = [sum(s[k] != 0 for s in signs) for k in (0, 1)]
    expected = sum(a * b for a, b in signs) / np.sqrt(apart[0] * apart[1])
    assert correlation.kendall(x, y) == pytest.approx(expected)
    assert correlation.kendall(x, x) == pytest.approx(1) and correlation.spearman(x, -x) == pytest.approx(-1)
    assert correlation.ranks(np.array([3.0, 1, 3, 2])).tolist() == [3.5, 1, 3.5, 2]  # ties at their mean


@pytest.mark.parametrize("picks", [1, 3, 9, 20])
def test_random_regret_is_the_mean_over_all_choices(picks):
    times = np.random.default_rng(1).random(9) + 1
    chosen = list(itertools.combinations(times, min(picks, 9)))
    expected = np.mean([min(each) for each in chosen]) / times.min() - 1
    assert correlation.random_regret(times, picks) == pytest.approx(expected)


def test_regret_is_of_the_best_among_the_best_predicted():
    predicted, measured = np.array([1.0, 2, 3, 4]), np.array([4.0, 3, 8, 2])
    assert [correlation.regret(predicted, measured, k) for k in (1, 2, 3, 4)] == [1, 0.5, 0.5, 0]


# ---- the command


def run(tmp_path, data, part, *more):
    """Return the exit code, the predictions and the figures."""
    out, figures = tmp_path / "out.csv", tmp_path / "out.json"
    code = ranking.main([data, "--part", part, *more, "--predictions", str(out), "--json", str(figures)])
    if code:
        return code, None, None
    header, *lines = out.read_text().splitlines()
    assert header == "time_ms"
    return code, np.array(lines, dtype=float), json.loads(figures.read_text()).get("ranking")


@pytest.mark.parametrize(("name", "part"), [("clblast", "rtx-3090"), ("convolution", "rtx-a4000")])
def test_a_space_is_predicted_in_its_order_and_compared_where_it_has_times(tmp_path, capsys, name, part):
    shape, arch = {column: values[::9] for column, values in getattr(spaces, name)().items()}, lookup(part)
    expected = roofline.seconds(measured_space.KERNELS[name].terms(shape, arch), arch) * 1e3
    empty = write_space(tmp_path / "empty.csv", shape, [""] * len(expected))
    code, predicted, found = run(tmp_path, empty, part)
    assert code == 0 and found is None
    np.testing.assert_allclose(predicted, expected, rtol=1e-4)
    times = expected * np.where(next(iter(shape.values())) == 64, 1.5, 1.0)
    filled = write_space(tmp_path / "filled.csv.gz", shape, times)
    _, again, found = run(tmp_path, filled, part, "--kernel", name)
    assert (again == predicted).all()
    assert (
        found["spearman"] == pytest.approx(correlation.spearman(predicted, times), abs=1e-3) and found["spearman"] < 1
    )
    assert {f"{kind}_{k}" for kind in ("regret", "random_regret") for k in (1, 8, 16, 64)} < set(found)
    assert found["spearman"] < 1 and "Spearman" in capsys.readouterr().out
    (other,) = measured_space.KERNELS.keys() - {name}
    assert run(tmp_path, filled, part, "--kernel", other)[0] == 2
    assert f"has not the columns of {other}: " in capsys.readouterr().err


#: Facts of an RTX 3090 that its capability does not say.
ROW = {"capability": '"sm_86"', "sms": 82, "clock_ghz": 1.695, "dram_gb_s": 936, "l2_mb": 6, "l2_bytes_per_clk": 1536}


def part_file(tmp_path, head="", **changes):
    row = {key: value for key, value in (ROW | changes).items() if value is not None}
    path = tmp_path / "mine.toml"
    path.write_text(head + "".join(f"{key} = {value}\n" for key, value in row.items()))
    return str(path)


def space_file(tmp_path, **changes):
    """Write six configurations without times; `changes` apply to the fourth."""
    columns = {name: values[:6].tolist() for name, values in spaces.clblast().items()} | {"time_ms": [""] * 6}
    for name, value in changes.items():
        columns[name][3] = value
    return write_space(tmp_path / "space.csv", columns, columns.pop("time_ms"))


@pytest.mark.parametrize("head", ["", "[part.other]\n"])
def test_a_row_of_a_file_is_a_part(tmp_path, head):
    data, file = space_file(tmp_path), part_file(tmp_path, head, unsure='["l2_mb"]')
    assert (run(tmp_path, data, file)[1] == run(tmp_path, data, "rtx-3090")[1]).all()
    part = measured_space.part_named(part_file(tmp_path, head, fma_f32=64))
    assert (part.part, part.name, part.rate("fma_f32")) == ("other" if head else "mine", "sm_86", 64)


def test_every_part_is_predicted(tmp_path):
    path = space_file(tmp_path)
    for arch in archs():
        found = measured_space.load(path, arch.part)
        assert np.isfinite(found.analytic_ms).all() and (found.analytic_ms > 0).all(), arch.part


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sms": None, "l2_mb": None}, "does not say sms, l2_mb"),
        ({"capability": None}, "does not say capability"),
        ({"colour": '"red"'}, "no part has colour"),
        ({"sms": '"48"'}, "sms is '48', which no part has"),
        ({"clock_ghz": 0}, "clock_ghz is 0"),
        ({"dram_gb_s": "nan"}, "dram_gb_s is nan"),
        ({"sms": "= 3"}, "mine.toml: "),
        ({"head": "[part.a]\nsms = 3\n[part.b]\n"}, "one table [part.NAME] is wanted"),
        ({"capability": '"sm_70"'}, "unknown arch 'sm_70'"),
        ("rtx-9999", "unknown arch"),
        ("missing.toml", "missing.toml"),
    ],
)
def test_a_part_that_is_none_is_refused(tmp_path, capsys, changes, message):
    part = changes if isinstance(changes, str) else part_file(tmp_path, **changes)
    assert run(tmp_path, space_file(tmp_path), part)[0] == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_ms": "fast"}, "line 5: time_ms is 'fast'"),
        ({"time_ms": "-1"}, "line 5: time_ms is '-1'"),
        ({"time_ms": "inf"}, "line 5: time_ms is 'inf'"),
        ({"MWG": "64.5"}, "line 5: MWG is '64.5', not an integer"),
        ({"MWG": ""}, "line 5: MWG is '', not an integer"),
        ({"MDIMC": 0}, "line 5: no such kernel can be"),
        ({"NDIMC": 4096}, "line 5: no such kernel can be"),
        (b"\x1f\x8b damaged", "space.csv.gz"),
        (b"\xff\xfe\x80", "space.csv"),
        (b"MWG\n", "space.csv"),
        (b"BLOCK,time_ms\n1,2\n", "no kernel here has the columns BLOCK"),
    ],
)
def test_a_file_that_is_no_space_is_refused(tmp_path, capsys, change, message):
    path = tmp_path / ("space.csv.gz" if message.endswith(".gz") else "space.csv")
    if isinstance(change, bytes):
        path.write_bytes(change)
    else:
        space_file(tmp_path, **change)
    assert run(tmp_path, str(path), "t4")[0] == 2
    assert message in capsys.readouterr().err


def test_one_time_alone_is_nothing_to_compare_with(tmp_path, capsys):
    head, *_, last = Path(space_file(tmp_path, time_ms="12.5")).read_text().splitlines(keepends=True)[:5]
    (tmp_path / "one.csv").write_text(head + last)
    assert run(tmp_path, str(tmp_path / "one.csv"), "t4")[2] is None
    assert "1 rows predicted, 1 of them measured" in capsys.readouterr().out


# ---- the measured spaces


@pytest.mark.parametrize(
    ("name", "part", "correlated", "lost"),
    [
        ("clblast_xgemm_fp32_4096_RTX_3090", "rtx-3090", 0.94, 0.05),
        ("clblast_xgemm_fp32_4096_RTX_2080_Ti", "rtx-2080-ti", 0.94, 0.05),
        ("convolution_fp32_4096_15x15_RTX_A4000", "rtx-a4000", 0.96, 0.02),
    ],
)
def test_the_potential_ranks_a_measured_space(name, part, correlated, lost):
    path = MEASURED / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip("the measured space is not here")
    space = measured_space.load(str(path), part)
    assert correlation.spearman(space.analytic_ms, space.time_ms) > correlated
    assert correlation.regret(space.analytic_ms, space.time_ms, 16) < lost
