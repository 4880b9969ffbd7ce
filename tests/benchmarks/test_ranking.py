"""benchmarks.ranking: its statistics, the command, refused files, and the measured spaces, if present."""

import csv
import gzip
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ranking
from benchmarks.spaces import clblast_terms, convolution_terms, correlation, measured_space
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import archs, lookup

#: A good configuration of each kernel.
GOOD = {
    clblast_terms: dict(zip(clblast_terms.NAMES, (128, 128, 32, 16, 8, 16, 32, 2, 4, 4, 0, 0, 1, 1), strict=True)),
    convolution_terms: dict(zip(convolution_terms.NAMES, (64, 2, 4, 4, 0, 0), strict=True)),
}


def columns(kernel, *changes):
    """Return good configurations with changes, as columns."""
    rows = [GOOD[kernel] | change for change in changes]
    return {name: np.array([row[name] for row in rows]) for name in kernel.NAMES}


def clblast():
    """Return a few hundred legal configurations of CLBlast's kernel."""
    changes = []
    for m, n, x, y, v, w, sa, sb in itertools.product(
        (32, 64, 128), (64, 128), (8, 16), (8, 16), *[(1, 4)] * 2, *[(0, 1)] * 2
    ):
        if m % (x * v) == 0 and n % (y * w) == 0:
            change = {"MWG": m, "NWG": n, "MDIMC": x, "NDIMC": y, "VWM": v, "VWN": w, "SA": sa, "SB": sb}
            changes.append(change | {"MDIMA": x, "NDIMB": y})
    return columns(clblast_terms, *changes)


def convolution():
    """Return all blocks and tiles of the measured convolution that can be launched."""
    values = ((16, 32, 48, 64, 128, 256), (1, 2, 4, 8, 16), (1, 2, 3, 4), (1, 2, 3, 4), (0, 1), (0, 1))
    space = dict(zip(convolution_terms.NAMES, np.array(list(itertools.product(*values))).T, strict=True))
    legal = ~convolution_terms.refused(space) & (convolution_terms._shared_bytes(space) <= 49152)
    return {name: column[legal] for name, column in space.items()}


SPACES = {"clblast": clblast, "convolution": convolution}


def write_space(path, space, times):
    """Write a measured space, compressed where the name ends in .gz, and return its path as text."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow([*space, "time_ms"])
        out.writerows(zip(*space.values(), times, strict=True))
    return str(path)


MEASURED = Path(__file__).resolve().parents[3] / "shared" / "measured"


def test_kendall_counts_pairs_and_regret_is_of_the_best_among_the_best_predicted(monkeypatch):
    monkeypatch.setattr(correlation, "CHUNK", 7)
    x, y = np.random.default_rng(0).integers(0, 12, (2, 40)).astype(float)
    pairs = list(itertools.combinations(range(40), 2))
    signs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in pairs]
    apart = [sum(s[k] != 0 for s in signs) for k in (0, 1)]
    expected = sum(a * b for a, b in signs) / np.sqrt(apart[0] * apart[1])
    assert correlation.kendall(x, y) == pytest.approx(expected)
    assert correlation.kendall(x, x) == pytest.approx(1) and correlation.spearman(x, -x) == pytest.approx(-1)
    assert correlation.ranks(np.array([3.0, 1, 3, 2])).tolist() == [3.5, 1, 3.5, 2]  # ties at their mean
    predicted, measured = np.array([1.0, 2, 3, 4]), np.array([4.0, 3, 8, 2])
    assert [correlation.regret(predicted, measured, k) for k in (1, 2, 3, 4)] == [1, 0.5, 0.5, 0]


@pytest.mark.parametrize("picks", [1, 3, 9, 20])
def test_random_regret_is_the_mean_over_all_choices(picks):
    times = np.random.default_rng(1).random(9) + 1
    chosen = list(itertools.combinations(times, min(picks, 9)))
    expected = np.mean([min(each) for each in chosen]) / times.min() - 1
    assert correlation.random_regret(times, picks) == pytest.approx(expected)


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
    shape, arch = {column: values[::9] for column, values in SPACES[name]().items()}, lookup(part)
    expected = roofline.seconds(measured_space.KERNELS[name].terms(shape, arch), arch) * 1e3
    assert np.isfinite(expected).all() and (expected > 0).all()
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
    columns = {name: values[:6].tolist() for name, values in clblast().items()} | {"time_ms": [""] * 6}
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


def seconds(kernel, arch, *changes):
    return roofline.seconds(kernel.terms(columns(kernel, *changes), arch), arch)


@pytest.mark.parametrize(
    ("width", "apart", "words", "clocks", "lines"),
    [
        (32, 1, 1, 1, 1),  # a row
        (32, 2, 1, 2, 2),  # every other bank
        (32, 32, 1, 32, 32),  # one bank
        (-32, 8, 1, 1, 1),  # all lanes read one word
        (32, 4, 4, 4, 4),  # 16 bytes each: a quarter warp at a time
        (-8, 8, 4, 2, 1),  # 16 bytes, neighbours read one address: half a warp at a time
        (-8, 8, 2, 1, 1),
        (16, 8, 1, 4, 4),  # 16 lanes 8 words apart: 4 banks, the others repeat them
    ],
)
def test_read_costs(width, apart, words, clocks, lines):
    assert clblast_terms.read_costs(width, apart, words) == (clocks, lines)


def test_copy_costs():
    assert clblast_terms.copy_costs(8, 4, 4096, 4) == (4.0, 4.0)
    assert clblast_terms.copy_costs(32, 1, 4096, 1) == (1.0, 1.0)


@pytest.mark.parametrize("part", ["rtx-3090", "h200"])
def test_physics_of_the_product(part):
    arch = lookup(part)
    single = {"MWG": 16, "NWG": 16, "NDIMC": 16, "NDIMB": 16, "VWM": 1, "VWN": 1}
    changes = ({}, single, {"VWM": 1, "SA": 0}, {"MDIMC": 8})
    good, small, narrow, spilling = seconds(clblast_terms, arch, *changes)
    assert good < narrow < small and good * 2 < spilling
    assert seconds(clblast_terms, replace(arch, clock_ghz=arch.clock_ghz / 2), {})[0] > good * 1.7
    # Adjacent lanes read without conflicts.
    both = columns(clblast_terms, {"VWM": 1, "STRM": 1}, {"VWM": 1})
    split, joined = clblast_terms.terms(both, arch).wavefronts
    assert split < joined


def test_every_product_and_output_is_computed_and_spilled_words_are_touched_in_the_loop():
    terms = clblast_terms.terms(clblast(), lookup("rtx-3090"))
    assert (terms.blocks * terms.iterations * terms.multiplies * terms.warps * 32 == 4096.0**3).all()
    terms = clblast_terms.terms(columns(clblast_terms, {}, {"MDIMC": 8}), lookup("rtx-3090"))
    assert terms.registers[1] == 255 > terms.registers[0]
    assert terms.l2_bytes[1] > 4 * terms.l2_bytes[0] and terms.issue[1] > terms.issue[0] * 4
    space = convolution()
    terms = convolution_terms.terms(space, lookup("rtx-a4000"))
    outputs = terms.blocks * terms.warps * 32 * terms.multiplies / 225
    assert (outputs >= 4096.0**2).all()
    whole = (4096 % (space["block_size_x"] * space["tile_size_x"]) == 0) & (space["tile_size_y"] != 3)
    assert (outputs[whole & (terms.warps * 32 == space["block_size_x"] * space["block_size_y"])] == 4096.0**2).all()


@pytest.mark.parametrize(("rows", "x", "y"), [(1, 1, 1), (4, 1, 4), (8, 2, 3), (16, 4, 2)])
def test_a_thread_reads_each_value_under_its_filters_once(rows, x, y):
    change = {"block_size_x": 16, "block_size_y": rows, "tile_size_x": x, "tile_size_y": y}
    values = {(b * rows + i, a * 16 + j) for a in range(x) for b in range(y) for i in range(15) for j in range(15)}
    assert convolution_terms.reads(columns(convolution_terms, change)).tolist() == [len(values)]


@pytest.mark.parametrize("tile", [1, 3, 4, 8])
def test_waits_are_the_turns_of_a_warp_through_both_loops(tile):
    """A warp waits where any of its threads takes the remainder loop, and where any takes the unrolled loop."""
    floats = (tile + 1, tile)
    turns = sum(any(turn < each % 4 for each in floats) for turn in range(3))
    turns += sum(any(turn < each // 4 for each in floats) for turn in range(3))
    assert convolution_terms.waits(np.array([tile])).tolist() == [turns]


@pytest.mark.parametrize(
    ("blocks", "busy", "away", "cycle"),
    [
        (1, 5, 7, 12),
        (2, 1, 1e6, 1e6 + 1),  # they hardly meet
        (30, 10, 3, 300),  # the resource never rests
        (4, 3, 0, 12),
        (2, 1, 1, 2.5),  # 1/3 of the cycles find the resource busy (Buzen's formula by hand)
    ],
)
def test_a_cycle_is_that_of_blocks_in_a_row(blocks, busy, away, cycle):
    found = convolution_terms.cycle(*(np.array([each], float) for each in (blocks, busy, away)))
    assert found[0] == pytest.approx(cycle, rel=1e-3)


@pytest.mark.parametrize("part", ["rtx-a4000", "h200"])
def test_physics_of_the_convolution(part):
    arch = lookup(part)
    changes = ({}, {"tile_size_x": 1, "tile_size_y": 1}, {"block_size_y": 16}, {"block_size_x": 16, "block_size_y": 1})
    good, single, apart, narrow = seconds(convolution_terms, arch, *changes)
    # One output per thread reads a value per tap; rows 16 apart share none; half of each warp is missing.
    assert good * 1.3 < min(single, narrow) and good < apart
    bound = 2 * 225 * 4096**2 / arch.peak("float32")
    assert bound < good < 20 * bound


def test_conflicts_cost_only_where_whole_warps_are_served_at_once():
    both = columns(convolution_terms, *({"block_size_x": 16, "use_padding": padding} for padding in (0, 1)))
    plain, padded = convolution_terms.terms(both, lookup("a100-40gb")).wavefronts
    assert plain > 1.5 * padded
    plain, padded = convolution_terms.terms(both, lookup("rtx-a4000")).wavefronts
    assert plain == padded
