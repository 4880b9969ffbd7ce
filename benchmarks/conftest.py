"""Adds the facts about the machine that `gensor-tune check` needs to the JSON of every run: docs/regressions.md."""

import numpy

from .gpu.facts import power_mode, smi


def pytest_benchmark_update_machine_info(config, machine_info):
    """Add the GPU with its driver and clocks, if there is one, and the library that the control benchmark runs on."""
    machine_info["numpy"] = numpy.__version__
    gpu = {**smi(), "power_mode": power_mode()}
    if gpu.get("name"):
        machine_info["gpu"] = gpu
