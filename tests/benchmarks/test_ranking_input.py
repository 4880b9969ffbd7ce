"""Input of benchmarks.ranking: every part, and files that are no spaces or no parts."""

import numpy as np
import pytest

from benchmarks import ranking
from benchmarks.spaces import measured_space, part_files
from gensor_kernels.machine.arch import archs

from .clblast_space import configurations, write_space

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


@pytest.mark.parametrize("arch", archs(), ids=lambda arch: arch.part)
def test_every_part_is_predicted(tmp_path, arch):
    found = measured_space.load(space_file(tmp_path), arch.part)
    assert np.isfinite(found.analytic_ms).all() and (found.analytic_ms > 0).all()
    assert np.isfinite(found.features).all()


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
    ("changes", "message"),
    [
        ({"time_ms": "fast"}, "line 5: time_ms is 'fast'"),
        ({"time_ms": "-1"}, "line 5: time_ms is '-1'"),
        ({"time_ms": "inf"}, "line 5: time_ms is 'inf'"),
        ({"MWG": "64.5"}, "line 5: MWG is '64.5', not an integer"),
        ({"MWG": ""}, "line 5: MWG is '', not an integer"),
        ({"MDIMC": 0}, "line 5: no such kernel can be"),
        ({"NDIMC": 4096}, "line 5: no such kernel can be"),
    ],
)
def test_a_row_that_is_none_is_named(tmp_path, capsys, changes, message):
    assert command(tmp_path, space_file(tmp_path, **changes), "t4") == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("name", "text"), [("a.csv.gz", b"MWG\n1\n"), ("a.csv", b"\xff\xfe\x80"), ("a.csv", b"MWG\n")])
def test_a_file_that_is_no_space_is_named(tmp_path, capsys, name, text):
    (tmp_path / name).write_bytes(text)
    assert command(tmp_path, str(tmp_path / name), "t4") == 2
    assert name in capsys.readouterr().err


def test_one_time_alone_is_nothing_to_compare_with(tmp_path, capsys):
    lines = (tmp_path / "space.csv").read_text() if space_file(tmp_path, time_ms="12.5") else ""
    (tmp_path / "one.csv").write_text("".join(lines.splitlines(keepends=True)[i] for i in (0, 4)))
    pytest.importorskip("lightgbm")
    assert command(tmp_path, str(tmp_path / "one.csv"), "t4") == 0
    assert "0 of 1 rows predicted" in capsys.readouterr().out


def command(tmp_path, data, part):
    return ranking.main([data, "--part", part, "--predictions", str(tmp_path / "out.csv")])
