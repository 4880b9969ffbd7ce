"""Probes of the roofline's facts: right on the emulator, and with the intended loops in machine code."""

import re

import pytest

from benchmarks.gpu import probes
from benchmarks.gpu.facts import _median_seconds
from benchmarks.gpu.harness.journal import Journal
from benchmarks.gpu.harness.session import Session
from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.build.resources import disassemble
from gensor_kernels.machine import arch as table
from gensor_kernels.machine.arch import lookup


def session(tmp_path, arch):
    return Session(tmp_path, Journal(tmp_path / "results.jsonl"), 1e18, emulate=True, arch_name=arch)


@pytest.mark.parametrize("arch", ["t4", "h200"])
def test_every_probe_finds_what_it_should_and_takes_time(tmp_path, arch):
    for name, probe in probes.probes(session(tmp_path, arch), _median_seconds):
        found = probe()
        assert all(value > 0 for value in found.values()), name


def test_a_probe_that_reads_something_else_is_noticed(tmp_path, monkeypatch):
    made = probes.Probes(session(tmp_path, "h200"), _median_seconds)
    real = made.run
    monkeypatch.setattr(made, "run", lambda entry, a, m, k, blocks: real(entry, a, m, k + 1, blocks))
    for probe in (made.l2, lambda: made.latency(of_l2=True)):
        with pytest.raises(probes.WrongProbeError):
            probe()


@pytest.mark.parametrize("arch", ["t4", "orin-nano-8gb", "h200", "rtx-5090"])
def test_loops_in_sass(tmp_path, arch):
    code = probes.Probes(session(tmp_path, arch), _median_seconds).code
    binary = compile_cubin(code.source, lookup(arch).target)
    assert binary.error is None and binary.spill_bytes == 0, binary.log
    sass = disassemble(binary.cubin, binary.target)
    if sass is None:
        pytest.skip("nvdisasm is not installed")
    loop = {entry: sass[f"probe_{entry}"].hot_loop for entry in ("stream", "chase", "fma", "mma")}
    assert loop["stream"]["LDG"] % probes.IN_FLIGHT == 0 and loop["chase"]["LDG"] >= 1
    assert loop["fma"]["FFMA"] % probes.CHAINS == 0 and loop["fma"]["FFMA"] > 0
    assert loop["mma"]["HMMA"] % probes.TILES == 0 and loop["mma"]["HMMA"] > 0


def test_the_row_it_makes_describes_a_part():
    arch = lookup("h200")
    found = {"l2": {"gb_s": 9900.0}, "l2 latency": {"ns": 150.0}, "launch": {"us": 3.25}, "copy": {"gb_s": 4321.0}}
    text = probes.arch_row(arch, 1.8, found)
    row = table.tomllib.loads(text)["part"]["h200"]
    made = table._build(row["capability"], "h200", row)
    assert (made.l2_bytes_per_clk, made.l2_latency, made.launch_us) == (5500, 270, 3.25)
    assert made.dram_latency == arch.dram_latency and made.dram_gb_s == arch.dram_gb_s  # not measured
    assert re.search(r"# the table has 6150$", text, re.MULTILINE)
    assert "# copy: 4321 gb_s" in text
