"""What `gensor-tune check` has to know of the machine goes into the JSON of every run: docs/regressions.md."""

import numpy

from .gpu.facts import power_mode, smi


def pytest_benchmark_update_machine_info(config, machine_info):
    """The GPU with its driver and clocks, where there is one, and the library the control benchmark runs on."""
    machine_info["numpy"] = numpy.__version__
    gpu = {**smi(), "power_mode": power_mode()}
    if gpu.get("name"):
        machine_info["gpu"] = gpu
