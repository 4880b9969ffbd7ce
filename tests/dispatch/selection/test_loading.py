"""Kernels that cannot be loaded on the emulator, databases that change under a block, and `warmup`."""

import importlib
import logging
import sqlite3
import sys
import threading
from contextvars import copy_context
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_database import Record, Store
from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library, load
from gensor_kernels.errors import BuildError, GensorError, UnsupportedError
from gensor_kernels.families.registry import FAMILIES
from tests.campaign_size import sample
from tests.doubles.device import FakeDevice, Race
from tests.doubles.kernels import ARCH, kernels, products, put, runtime_of, workload
from tests.doubles.store_rows import add_rows
from tests.doubles.stored import class_workload, programs, rows

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


# ---- warmup


ARCHS = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_120")
EMULATOR = "gensor_kernels.devices.emulator."
emulates = pytest.mark.usefixtures("needs_emulator")
#: The first layer of ResNet-50, whose kernels look at the window on the image.
FIRST_LAYER = dict(op="conv2d", dtype="fp16", batch=1, h=224, w=224, c=3, k_out=64, r=7, s=7, layout="NHWC")
FIRST_LAYER |= dict(stride_h=2, stride_w=2, pad_top=3, pad_bottom=3, pad_left=3, pad_right=3)
SMALL, LARGE = workload(64, 64, 64), workload(2048, 2048, 2048)


@pytest.fixture
def runtime(no_databases, monkeypatch):
    found = kernels(SMALL)
    first, second, *_ = found
    return put(monkeypatch, runtime_of(FakeDevice(clock=Race()), found, {SMALL.key(): first, LARGE.key(): second}))


def test_everything_stored(runtime):
    assert gk.warmup() == 2 and runtime.loaded == set(runtime.library.contents.records.values())
    assert not runtime.plans and not runtime.device.races


def test_pins_of_a_block(runtime, tmp_path):
    """The first block loads the kernels that it would choose, the second those of the list."""
    path, stored = tmp_path / "kernels.json", set(runtime.library.contents.records.values())
    with gk.deterministic(path):
        assert gk.warmup() == 2
        products(current.current_runtime(), 2)
        assert current.current_runtime().loaded == stored and not runtime.loaded
    with gk.deterministic(path):
        assert gk.warmup() == 1
        assert current.current_runtime().loaded == {runtime.library.contents.records[SMALL.key()]}


def test_a_shapes_file(runtime, tmp_path):
    (tmp_path / "s.csv").write_text("op,m,n,k,dtype\nmatmul,64,64,64,fp32\nmatmul,64,64,64,fp64\nmatmul,x,64,64,fp32\n")
    assert gk.warmup(tmp_path / "s.csv") == 1
    assert runtime.loaded == {runtime.library.contents.records[SMALL.key()]}


def test_a_database(runtime, tmp_path):
    """It names the Workloads; the kernels are those of the databases in use."""
    with Store.open(tmp_path / "other.db") as store:
        for each in (SMALL, workload(64, 64, 64, dtype="float64")):
            store.add(Record(each.key(), ARCH.name, ARCH.part, 1, None, None, None, "failed"))
    assert gk.warmup(tmp_path / "other.db") == 1


def test_inside_a_capture_the_first_call_launches(runtime):
    runtime.device.is_capturing = True
    with pytest.raises(AssertionError):
        assert products(runtime, 1) == [55]
    runtime.device.is_capturing = False
    gk.warmup()
    runtime.device.is_capturing = True
    assert products(runtime, 1) == [55]


def test_kernels_without_a_binary_are_not_compiled(runtime):
    plain = {
        digest: library.Kernel(digest, each.program, each.serves, lambda each=each: replace(each.code, cubin=b""))
        for digest, each in kernels(SMALL).items()
    }
    runtime.library = library.Library(library.Contents(plain, {SMALL.key(): next(iter(plain))}))
    assert gk.warmup() == 0


def test_files_that_are_neither(runtime, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv"):
        gk.warmup(tmp_path / "nothing.csv")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(GensorError, match="no column 'op'"):
        gk.warmup(tmp_path / "bad.csv")
    (tmp_path / "bad.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(GensorError, match=r"bad\.db"):
        gk.warmup(tmp_path / "bad.db")


# ---- the shipped databases


def nothing_is_compiled(patch):
    def refuse(*arguments, **keywords):
        raise AssertionError("something is compiled")

    patch.setattr(importlib.import_module(EMULATOR + "build"), "_compile", refuse)
    patch.setattr("gensor_kernels.build.nvrtc.compile_cubin", refuse)


@pytest.fixture
def emulators():
    gk.refresh()
    yield
    gk.refresh()


@emulates
@pytest.mark.parametrize("arch", sample(ARCHS, 1))
def test_every_record_is_placed_on_the_emulator(arch, emulators, monkeypatch):
    """By the kernel that was tuned for it: chosen and bound, and not built."""
    nothing_is_compiled(monkeypatch)
    with gk.emulated(arch):
        count, library = gk.warmup(), current.current_runtime().library
        assert library.contents.records and count == len(set(library.contents.records.values()))


@pytest.mark.parametrize("arch", sample(["sm_87", "sm_90"], 1))
def test_every_stored_binary_is_loaded(arch, monkeypatch):
    nothing_is_compiled(monkeypatch)
    board = FakeDevice(arch, clock=Race())
    made = put(monkeypatch, Runtime(board, load.library(board.arch)))
    contents = load.read(board.arch)
    wanted = {fastest(contents.timings.get(key, ()), digest) for key, digest in contents.records.items()}
    assert gk.warmup() == len(wanted) and made.loaded == wanted


def fastest(timings, recorded):
    """The kernel with the least time, or else the recorded one."""
    timed = [row for row in timings if row.kernel_digest is not None]
    return min(timed, key=lambda row: row.median_us).kernel_digest if timed else recorded


@emulates
def test_the_first_layer_of_resnet(emulators, monkeypatch, tmp_path):
    """The kernels of a file are built, once, and only these."""
    asked, device = [], importlib.import_module(EMULATOR + "device")
    monkeypatch.setattr(device, "is_built", lambda source: source in asked)
    monkeypatch.setattr(device, "build_many", lambda sources, done: asked.extend(sources))
    monkeypatch.setattr(device, "build", lambda source: tmp_path / "library.so" if source in asked else None)
    (tmp_path / "s.csv").write_text(f"{','.join(FIRST_LAYER)}\n{','.join(map(str, FIRST_LAYER.values()))}\n")
    with gk.emulated("sm_87"):
        assert gk.warmup(tmp_path / "s.csv") == 1
        runtime = current.current_runtime()
        kernel = runtime.library.kernel(*runtime.loaded)
        assert kernel.program.family == "contraction_strip" and asked == [kernel.code.source]
        assert gk.warmup(tmp_path / "s.csv") == 1 and len(asked) == 1


@pytest.mark.parametrize("installed", [True, False])
def test_progress(runtime, monkeypatch, caplog, installed):
    """A bar where tqdm is installed; the log elsewhere."""
    bars = []

    class Bar:
        def __init__(self, total, **more):
            bars.append([total, 0])

        __enter__, __exit__ = lambda self: self, lambda self, *error: None

        def update(self):
            bars[-1][1] += 1

    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar) if installed else None)
    with caplog.at_level(logging.INFO, "gensor_kernels"):
        assert gk.warmup() == 2
    assert bars == ([[2, 2]] if installed else [])
    assert ("kernel 2 of 2" in caplog.text) is not installed
