"""`gensor-tune archs`: every part by name, and one part with its figures, their sources and what ships for it."""

import re
from importlib import resources

import pytest

from gensor_database import PRETUNED, Store
from gensor_kernels.machine.arch import archs, lookup, modes, table

TEXT = resources.files("gensor_kernels.machine").joinpath("archs.toml").read_text(encoding="utf-8")


def test_every_part_is_listed_by_its_usual_name(gensor_tune):
    code, out, err = gensor_tune("archs")
    head, *lines = out.splitlines()
    assert code == 0 and head.split()[:2] == ["arch", "part"] and "TFLOP/s" in err
    assert max(map(len, lines)) <= 100
    for line in lines:
        name, part, sms, clock = line.split()[:4]
        arch = lookup(part)
        assert (name, sms, clock) == (arch.name, str(arch.sms), f"{arch.clock_ghz:.2f}")
        assert lookup(line[len(head.removesuffix("name")) :]) is arch
    listed = {lookup(line.split()[1]).part for line in lines}
    assert listed == {each.part for arch in archs() for each in (arch, *modes(arch).values())}


def test_a_power_mode_is_shown_with_its_own_clocks_and_those_of_its_module(gensor_tune):
    _, out, _ = gensor_tune("archs", "Jetson AGX Orin@15W")
    lines = {line[:15].strip(): line[15:].split() for line in out.splitlines()}
    assert lines["part"][0] == "agx-orin-64gb-6sm-408mhz," and lines["SMs"][:2] == ["6", "[nvp]"]
    assert lines["clock"][:3] == ["0.408", "GHz", "[nvp]"] and lines["bandwidth"][:3] == ["136.5", "GB/s", "[nvp]"]
    assert lines["memory"] == ["64", "GiB", "[ds]"] and "@30w" in lines["power modes"]


@pytest.mark.parametrize("arch", archs(), ids=lambda arch: arch.part)
def test_one_part_is_shown_with_its_figures_and_their_sources(gensor_tune, arch):
    code, out, err = gensor_tune("archs", table()["part"][arch.part]["names"][0].upper())
    lines = out.splitlines()
    assert (code, err, lines[0].split()[1:]) == (0, "", [f"{arch.part},", arch.name])
    figures = {line[:15].strip(): line[15:].split() for line in lines}
    assert int(figures["SMs"][0]) == arch.sms and float(figures["clock"][0]) == arch.clock_ghz
    assert float(figures["bandwidth"][0]) == arch.dram_gb_s and float(figures["fma_f32"][0]) == arch.rate("fma_f32")
    for name in arch.sustained:
        assert float(figures[f"kept {name}"][0]) == arch.sustained[name]
    section = TEXT.partition(f"\n[part.{arch.part}]\n")[2].partition("\n\n")[0]
    for key, label, unit in (("sms", "SMs", 0), ("memory_gb", "memory", 1), ("dram_gb_s", "bandwidth", 1)):
        source = " ".join(word for word in figures[label][1 + unit :] if word != "(unsure)")
        assert re.search(rf"^{key} = {figures[label][0]} +# {re.escape(source)}$", section, re.MULTILINE), label
    assert out.count("(unsure)") == len(arch.unsure)
    with Store.open(PRETUNED / f"{arch.name}.db", readonly=True, immutable=True) as store:
        assert f"{store.counts()['kernel']} kernels" in " ".join(figures["ships"])


def test_an_unknown_part_is_answered_by_similar_names(gensor_tune):
    code, out, err = gensor_tune("archs", "Jetson Orin")
    assert (code, out) == (2, "") and "did you mean orin-nano-8gb, orin-nx-16gb, agx-orin-64gb?" in err
