"""benchmarks.ranking: its statistics, the command, and the measured spaces, if present."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ranking
from benchmarks.spaces import clblast_terms, convolution_terms, correlation, measured_space, part_files
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import archs, lookup

from .clblast_space import configurations, write_space

MEASURED = Path(__file__).resolve().parents[3] / "shared" / "measured"
PARTS = {"RTX_3090": "rtx-3090", "RTX_2080_Ti": "rtx-2080-ti"}


# ---- statistics


def test_ranks_put_ties_at_their_mean():
    assert correlation.ranks(np.array([3.0, 1, 3, 2])).tolist() == [3.5, 1, 3.5, 2]


def test_kendall_counts_pairs(monkeypatch):
    monkeypatch.setattr(correlation, "CHUNK", 7)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 12, (2, 40)).astype(float)
    pairs = list(itertools.combinations(range(40), 2))
    signs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in pairs]
    apart = [sum(s[k] != 0 for s in signs) for k in (0, 1)]
    expected = sum(a * b for a, b in signs) / np.sqrt(apart[0] * apart[1])
    assert correlation.kendall(x, y) == pytest.approx(expected)
    assert correlation.kendall(x, x) == pytest.approx(1) and correlation.spearman(x, -x) == pytest.approx(-1)


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


@pytest.fixture
def space(tmp_path):
    """Configurations with times."""
    shape = configurations()
    times = slower_unstaged(shape, "rtx-3090")
    return write_space(tmp_path / "space.csv.gz", shape, times), shape, times


def run(tmp_path, *arguments):
    out = tmp_path / "out.csv"
    code = ranking.main([*arguments, "--predictions", str(out), "--json", str(tmp_path / "out.json")])
    lines = out.read_text().splitlines() if out.exists() else [""]
    return code, np.array(lines[1:], dtype=float), lines[0]


def predicted_ms(shape, part):
    arch = lookup(part)
    return roofline.seconds(clblast_terms.terms(shape, arch), arch) * 1e3


def slower_unstaged(shape, part):
    """Return the potential, 1.5 times as long where A is not staged."""
    return predicted_ms(shape, part) * np.where(shape["SA"] == 0, 1.5, 1.0)


def test_a_filled_space_is_compared(tmp_path, space, capsys):
    path, _, times = space
    code, predicted, header = run(tmp_path, path, "--part", "rtx-3090")
    assert code == 0 and header == "time_ms" and len(predicted) == len(times)
    found = json.loads((tmp_path / "out.json").read_text())["ranking"]
    assert (
        found["spearman"] == pytest.approx(correlation.spearman(predicted, times), abs=1e-3) and found["spearman"] < 1
    )
    assert {f"{kind}_{k}" for kind in ("regret", "random_regret") for k in (1, 8, 16, 64)} < set(found)
    printed = capsys.readouterr()
    assert "Spearman" in printed.out
    assert (tmp_path / "out.png").exists() != ("no plot" in printed.err)


def test_a_row_of_a_file_is_a_part(tmp_path, space):
    row = tmp_path / "mine.toml"
    row.write_text(
        'capability = "sm_86"\nsms = 82\nclock_ghz = 1.695\ndram_gb_s = 936\nl2_mb = 6\nl2_bytes_per_clk = 1536\n'
    )
    table = tmp_path / "table.toml"
    table.write_text(f'[part.mine]\n{row.read_text()}unsure = ["l2_mb"]\n')
    expected = run(tmp_path, space[0], "--part", "rtx-3090")[1]
    for path in (row, table):
        code, predicted, _ = run(tmp_path, space[0], "--part", str(path))
        assert code == 0 and (predicted == expected).all()
        assert measured_space.part_named(str(path)).part == "mine"


def test_empty_rows_are_predicted_in_their_order(tmp_path, space):
    _, shape, times = space
    path = write_space(tmp_path / "empty.csv.gz", shape, [""] * len(times))
    code, predicted, _ = run(tmp_path, path, "--part", "rtx-3090")
    assert code == 0
    np.testing.assert_allclose(predicted, predicted_ms(shape, "rtx-3090"), rtol=1e-4)


def test_the_kernel_can_be_named(tmp_path, space, capsys):
    code, named, _ = run(tmp_path, space[0], "--part", "rtx-3090", "--kernel", "clblast")
    assert code == 0 and (named == run(tmp_path, space[0], "--part", "rtx-3090")[1]).all()
    assert run(tmp_path, space[0], "--part", "rtx-3090", "--kernel", "convolution")[0] == 2
    assert "has not the columns of convolution: block_size_x" in capsys.readouterr().err


def test_a_convolution_is_predicted_and_compared(tmp_path):
    shape = tiles()
    arch = lookup("rtx-a4000")
    expected = roofline.seconds(convolution_terms.terms(shape, arch), arch) * 1e3
    empty = write_space(tmp_path / "empty.csv", shape, [""] * len(expected))
    code, predicted, _ = run(tmp_path, empty, "--part", "rtx-a4000", "--kernel", "convolution")
    assert code == 0
    np.testing.assert_allclose(predicted, expected, rtol=1e-4)
    filled = write_space(tmp_path / "filled.csv", shape, expected)
    assert run(tmp_path, filled, "--part", "rtx-a4000", "--kernel", "convolution")[0] == 0
    found = json.loads((tmp_path / "out.json").read_text())["ranking"]
    assert found["spearman"] == 1 and found["regret_1"] == 0


def tiles():
    """A few configurations of the convolution, as columns."""
    values = ((32, 64), (1, 2, 4), (1, 2, 4), (1, 2, 4), (0, 1), (0,))
    return dict(zip(convolution_terms.NAMES, np.array(list(itertools.product(*values))).T, strict=True))


# ---- the measured spaces


@pytest.fixture(scope="module")
def measured():
    paths = {gpu: MEASURED / f"clblast_xgemm_fp32_4096_{gpu}.csv.gz" for gpu in PARTS}
    if not all(path.exists() for path in paths.values()):
        pytest.skip("the measured spaces are not here")
    return {gpu: measured_space.load(str(path), PARTS[gpu]) for gpu, path in paths.items()}


@pytest.mark.parametrize("gpu", PARTS)
def test_the_potential_ranks_a_measured_space(measured, gpu):
    space = measured[gpu]
    assert correlation.spearman(space.analytic_ms, space.time_ms) > 0.94
    assert correlation.regret(space.analytic_ms, space.time_ms, 16) < 0.05


def test_the_potential_ranks_the_measured_convolution():
    path = MEASURED / "convolution_fp32_4096_15x15_RTX_A4000.csv.gz"
    if not path.exists():
        pytest.skip("the measured space is not here")
    space = measured_space.load(str(path), "rtx-a4000", "convolution")
    assert correlation.spearman(space.analytic_ms, space.time_ms) > 0.96
    assert correlation.regret(space.analytic_ms, space.time_ms, 16) < 0.02


# ---- Input of benchmarks.ranking: every part, and files that are no spaces or no parts

ROW = {"capability": '"sm_86"', "sms": 48, "clock_ghz": 1.56, "dram_gb_s": 448, "l2_mb": 4, "l2_bytes_per_clk": 1024}


def part_file(tmp_path, head="", **changes):
    row = {key: value for key, value in (ROW | changes).items() if value is not None}
    path = tmp_path / "mine.toml"
    path.write_text(head + "".join(f"{key} = {value}\n" for key, value in row.items()))
    return str(path)


def space_file(tmp_path, **changes):
    """Write six configurations without times; `changes` apply to the fourth."""
    columns = {name: values[:6].tolist() for name, values in configurations().items()} | {"time_ms": [""] * 6}
    for name, value in changes.items():
        columns[name][3] = value
    return write_space(tmp_path / "space.csv", columns, columns.pop("time_ms"))


def test_every_part_is_predicted(tmp_path):
    path = space_file(tmp_path)
    for arch in archs():
        found = measured_space.load(path, arch.part)
        assert np.isfinite(found.analytic_ms).all() and (found.analytic_ms > 0).all(), arch.part


def test_a_part_file_says_what_its_capability_does_not(tmp_path):
    part = part_files.part_named(part_file(tmp_path, "[part.rtx-a4000]\n", fma_f32=64))
    assert (part.part, part.name, part.sms, part.rate("fma_f32")) == ("rtx-a4000", "sm_86", 48, 64)


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
    ],
)
def test_a_file_that_is_no_part_is_refused(tmp_path, capsys, changes, message):
    assert command(tmp_path, space_file(tmp_path), part_file(tmp_path, **changes)) == 2
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
    assert command(tmp_path, str(path), "t4") == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("part", "message"), [("rtx-9999", "unknown arch"), ("missing.toml", "missing.toml")])
def test_an_unknown_part_is_refused(tmp_path, capsys, part, message):
    assert command(tmp_path, space_file(tmp_path), part) == 2
    assert message in capsys.readouterr().err


def test_one_time_alone_is_nothing_to_compare_with(tmp_path, capsys):
    lines = (tmp_path / "space.csv").read_text() if space_file(tmp_path, time_ms="12.5") else ""
    (tmp_path / "one.csv").write_text("".join(lines.splitlines(keepends=True)[i] for i in (0, 4)))
    assert command(tmp_path, str(tmp_path / "one.csv"), "t4") == 0
    assert "1 rows predicted, 1 of them measured" in capsys.readouterr().out


def command(tmp_path, data, part):
    return ranking.main([data, "--part", part, "--predictions", str(tmp_path / "out.csv")])
