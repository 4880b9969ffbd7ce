"""Kernels that cannot be loaded on the emulator, where no library steps in, and databases that change under a block."""

import sqlite3
import threading
from contextvars import copy_context

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.errors import BuildError, UnsupportedError
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from tests.doubles.store_rows import add_rows
from tests.doubles.stored import class_workload, programs, rows

ARCH = lookup("sm_87")
A = np.ones((16, 16), np.float32)
PRODUCT = class_workload("float32", "float32", "ieee", "knn", True)
BROKEN = "\n#error this kernel is damaged\n"


@pytest.fixture
def database(no_databases, monkeypatch, tmp_path):
    """The path of the one database there is; it is not there yet."""
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "kernels.db"))
    gk.refresh()
    return tmp_path / "kernels.db"


@pytest.fixture
def loads(monkeypatch):
    """The codes that are loaded; in place of being built, one that would not compile is refused."""
    found = []

    def load(self, code, launches):
        if self.refuses or BROKEN in code.text:
            raise BuildError("g++ refused the kernel: it is damaged")
        found.append(code.digest)
        return lambda arguments, arrays, steps, workspace: arrays[0].fill(55)

    monkeypatch.setattr(EmulatorDevice, "load", load)
    monkeypatch.setattr(EmulatorDevice, "refuses", False, raising=False)
    return found


def store(path, wanted, program, text=None):
    """Stores one kernel; its digest."""
    found = rows(program, wanted, ARCH, text)
    add_rows(path, *found)
    return found[2].digest


def product_kernel(**values):
    return programs(PRODUCT, ARCH, "contraction_simt", False, 0)[0].replace(**values)


@pytest.mark.filterwarnings("ignore::gensor_database.StoreWarning")
@pytest.mark.parametrize("fused", [{}, {"activation": "relu"}])
def test_a_binary_that_cannot_be_read_is_passed_over(database, loads, fused):
    """It alone names the epilogue that is compiled into it, so nothing says what calls the kernel serves."""
    digest = store(database, PRODUCT.with_epilogue(["relu"]), product_kernel(epilogue_fixed=1))
    with gk.emulated("sm_87"):
        assert gk.explain(gk.matmul, A, A, activation="relu").kernel == digest
    with sqlite3.connect(database) as raw:
        raw.execute("update binary set constants = '{}'")
    raw.close()
    gk.refresh()
    with gk.emulated("sm_87"):
        assert gk.matmul(A, A, **fused)[0, 0] == 55
        assert "default Programs" in gk.explain(gk.matmul, A, A, **fused).reason


def test_a_kernel_that_does_not_compile_is_passed_over(database, loads, caplog):
    """Another stored one, and at last a default Program."""
    family = FAMILIES["contraction_simt"]
    broken = store(database, PRODUCT, product_kernel(), family.text + BROKEN)
    with gk.emulated("sm_87"):
        assert gk.explain(gk.matmul, A, A).kernel == broken
        assert gk.matmul(A, A)[0, 0] == 55 and gk.matmul(A, A[:, :8])[0, 0] == 55
    assert len(loads) == 2 and "it is damaged" in caplog.text


def test_a_call_whose_kernels_are_all_refused_says_why(database, loads, monkeypatch):
    monkeypatch.setattr(EmulatorDevice, "refuses", True)
    with gk.emulated("sm_87"):
        for call in (lambda: gk.matmul(A, A), lambda: gk.sum(A, axis=1)):
            with pytest.raises(UnsupportedError, match="it is damaged"):
                call()


# ---- refresh


def test_refresh_holds_for_every_open_block(database, loads):
    """For outer blocks and those of other threads, with the database that the environment names then."""
    entered, refreshed, found = threading.Event(), threading.Event(), []

    def elsewhere():
        with gk.emulated("sm_87"):
            entered.set()
            refreshed.wait(30)
            found.append(gk.explain(gk.matmul, A, A).kernel)

    thread = threading.Thread(target=copy_context().run, args=(elsewhere,))
    with gk.emulated("sm_87"):
        gk.matmul(A, A)
        thread.start()
        assert entered.wait(30)
        digest = store(database, PRODUCT, product_kernel())
        with gk.emulated("orin-nx-16gb"):
            gk.refresh()
            refreshed.set()
            found.append(gk.explain(gk.matmul, A, A).kernel)
        found.append(gk.explain(gk.matmul, A, A).kernel)
        gk.matmul(A, A)
    thread.join(30)
    assert found == [digest] * 3 and len(set(loads)) == 2
