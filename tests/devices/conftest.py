"""Fixtures of several files: a machine over the strict double of the driver, and an empty cache of the emulator."""

import shutil

import pytest

from gensor_kernels.devices.emulator.build import _emulator_digest, build, usable_folder
from tests.doubles.emulated_kernels import SMALL, source


@pytest.fixture
def machine(monkeypatch):
    pytest.importorskip("cupy")
    from tests.doubles.strict.machine import without_races

    from .strict_machine import PART

    with without_races(monkeypatch, PART) as made:
        yield made


@pytest.fixture
def product(machine, monkeypatch, needs_emulator):
    from .strict_machine import make_product

    return make_product(machine, monkeypatch)


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A cache folder with nothing but the emulator's own object, which takes seconds to compile."""
    made = build(source(SMALL + "KERNEL(test, Params, 32, 0) {}")).parent
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "cache"))
    shutil.copy(made / f"{_emulator_digest()}.o", usable_folder())
    return tmp_path / "cache"
