"""docs/static-figures.md has every family, and the benchmark that writes it still makes the same rows."""

import pytest

from benchmarks.static_figures import ARCHS, HEAD, SAMPLE, TABLE, figures
from gensor_kernels.programs.registry import FAMILIES


def test_the_table_has_every_workload_family_and_arch():
    text = TABLE.read_text(encoding="utf-8")
    assert text.startswith(HEAD)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text[len(HEAD) :].splitlines()]
    assert {(row[0], row[1]) for row in cells} == {(name, arch) for name in SAMPLE for arch in ARCHS}
    assert {row[2].strip("`") for row in cells} == set(FAMILIES)
    # With channels first, outputs that are read together may lie in two rows of a patch: not an aligned class.
    aligned = [row for row in cells if row[2] != "`contraction_patch`"]
    assert all(row[8] == "0" for row in aligned), "shared-memory conflicts on aligned classes"


@pytest.mark.parametrize("name", ["reduce_sum fp32", "max_pool2d fp32 nchw"])
def test_a_row_is_what_the_compiler_and_the_emulator_say_now(name):
    row = figures(name, SAMPLE[name], "sm_87")
    assert row.spill_bytes == row.conflicts == 0 and row.registers > 16 and 1 <= row.traffic < 1.2
    written = next(line for line in TABLE.read_text(encoding="utf-8").splitlines() if f"| {name} | sm_87 |" in line)
    assert row.line().split("|")[3] == written.split("|")[3]
