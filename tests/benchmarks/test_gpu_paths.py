"""The paths of benchmarks.device that a rehearsal does not take, over NumPy with a fake clock and a fake library."""

import json
import time
from types import SimpleNamespace

import pytest

from benchmarks.gpu import facts, families, probes, shipped, timing
from benchmarks.gpu.harness import session
from benchmarks.gpu.harness.journal import Journal
from benchmarks.gpu.kernels import output_blocks as parts
from benchmarks.gpu.kernels import real_size
from benchmarks.gpu.kernels.fitting import fitting, is_legal
from gensor_database.record import Kernel, Timing, Verification
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.windows import conv
from gensor_tuner.build.pool import candidate
from gensor_tuner.measure import timer
from gensor_tuner.measure.operands import Noise
from tests.doubles.device import FakeDevice, Numpy, emulate, wide_product
from tests.doubles.store_rows import add_rows

from .stored_kernel import ARCH, stored_kernel


class Event:
    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass


#: NumPy with the parts of cupy.cuda that the benchmarks use.
CUPY = Numpy(
    __version__="fake",
    get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
    cuda=SimpleNamespace(
        Event=Event,
        get_elapsed_time=lambda start, end: (end.at - start.at) * 1e3,
        get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
        Device=lambda number: SimpleNamespace(attributes={"MultiProcessorCount": 8}, compute_capability="87"),
        runtime=SimpleNamespace(
            getDevice=lambda: 0,
            getDeviceProperties=lambda number: {"name": b"Orin"},
            memGetInfo=lambda: (1 << 30, 1 << 33),
            runtimeGetVersion=lambda: 12060,
            driverGetVersion=lambda: 12060,
        ),
    ),
)


def device(arch=ARCH, execute=emulate):
    """The emulator with a library, which passes for a GPU."""
    return FakeDevice(arch, execute, xp=CUPY, multiply=wide_product)


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "lacking", lambda session, store: [])  # no operators without kernels
    made = session.Session(tmp_path, Journal(tmp_path / "results.jsonl"), time.monotonic() + 300)
    made.__dict__["device"] = device()
    return made


def short_rounds(monkeypatch, module):
    """Let a step time by the host's clock, in few short rounds."""
    monkeypatch.setattr(module, "CudaClock", lambda device: timer.HostClock())
    for name, value in {"ROUNDS": 3, "ROUND_SECONDS": 1e-4, "LARGEST_BYTES": 1 << 16}.items():
        monkeypatch.setattr(timer, name, value)


def ends(gpu, step):
    return {item: end for (_, item), end in gpu.journal.results(step).items()}


def test_facts(gpu, monkeypatch):
    monkeypatch.setattr(facts, "COPY_BYTES", 1 << 16)
    monkeypatch.setattr(facts, "SIDE", 48)
    monkeypatch.setattr(probes, "tiny", lambda session: True)
    assert gpu.work("facts", facts.items(gpu)) == 0
    found = ends(gpu, "facts")
    assert {end["outcome"] for end in found.values()} == {"ok"}
    assert found["environment"]["gpu"] == "Orin" and found["environment"]["part"] == ARCH.part
    assert found["copy"]["gb_s"] > 0 and found["matmul float32"]["tflops"] > 0


def test_families_are_compiled_ahead_for_the_device(gpu):
    kinds = "contraction_mma float16>float16|contraction_simt float32>float32|gemv float16>float16"
    gpu.only = rf"({kinds}) kn 16/16/16 starter 0$"
    assert gpu.work("families", families.items(gpu)) == 0
    found = ends(gpu, "families")
    assert len(found) == 3 and all(end["outcome"] == "ok" and 0 < end["worst"] <= 1 for end in found.values())


def store_rows(gpu, workload):
    """Return the path of a database with the first starter of a workload."""
    path = gpu.out / "kernels.db"
    add_rows(path, *stored_kernel(workload))
    return path


def test_stored_kernels_are_verified_and_timed_beside_the_library(gpu, monkeypatch):
    workload = matmul.workload(72, 48, 40, batch=2, epilogue="bias_relu")
    gpu.db = store_rows(gpu, workload)
    short_rounds(monkeypatch, timing)
    assert gpu.work("shipped", shipped.items(gpu)) == 0
    assert gpu.work("timing", timing.items(gpu)) == 0
    (found,) = ends(gpu, "timing").values()
    assert found["outcome"] == "ok" and found["vendors_us"]["cupy"] > 0 and found["key"] == workload.key()
    with gpu.store() as store:
        (verdict,) = store.rows(Verification)
        assert (verdict.method, verdict.outcome) == ("device", "ok")
        assert json.loads(verdict.cases)[0]["m"] == 72 and json.loads(verdict.provenance)["checked"] == 1
        times = list(store.rows(Timing, part=ARCH.part))
        assert sorted(row.vendor or "" for row in times) == ["", "cupy.matmul"]
        assert json.loads(times[0].samples)["machine"]["gpu"] == "Orin"
        assert store.kernel(verdict.kernel_digest).verified == "device"


def test_a_large_output_is_compared_in_blocks(gpu, monkeypatch):
    monkeypatch.setattr(parts, "PRODUCT_WORK", 4e4)
    workload = matmul.workload(72, 48, 40, batch=2, epilogue="bias_add_relu")
    gpu.db = store_rows(gpu, workload)
    shipped.fill(gpu)
    (each,) = shipped.stored_kernels(gpu)
    found = real_size.check(gpu, Noise(gpu.device), each.candidate, each.code, workload)
    assert found["outcome"] == "ok" and found["checked"] == 1 and found["whole"] == 0
    monkeypatch.setattr(real_size, "SECONDS", 0.0)
    assert 0 < real_size.check(gpu, Noise(gpu.device), each.candidate, each.code, workload)["checked"] < 0.5


def test_sizes_follow_the_free_memory(gpu):
    workload = matmul.workload(16384, 16384, 8192, batch=64, trans_b=True)
    fits = fitting(gpu, workload)
    assert fits.bytes_moved() <= (1 << 30) / 3 and fits.class_key() == workload.class_key()
    small = matmul.workload(128, 128, 128)
    assert fitting(gpu, small) == small


def test_a_rehearsal_runs_kernels_at_sizes_at_which_they_are_legal():
    rehearsed = SimpleNamespace(emulate=True, arch=ARCH)
    stem = conv.workload(n=8, h=224, w=224, c=3, k_out=64, r=7, s=7, stride_h=2, stride_w=2, dtype="float16")
    sides = {"pad_top": 1, "pad_bottom": 1, "pad_left": 1, "pad_right": 1, "stride_h": 2, "stride_w": 2}
    wide = conv.workload(n=8, h=16, w=16, c=128, k_out=64, r=4, s=4, **sides, transposed=True, dtype="float16")
    # A strip of the stem's few channels; a block that multiplies 64 channels at once.
    for workload, name, values in ((stem, "contraction_strip", {}), (wide, "contraction_phased_mma", {"block_k": 64})):
        program = FAMILIES[name].starters(workload, ARCH)[0].replace(**values)
        kernel = candidate(FAMILIES[name], program, workload)
        found = fitting(rehearsed, workload, kernel)
        assert is_legal(kernel, found, ARCH) and not is_legal(kernel, fitting(rehearsed, workload), ARCH)
        assert max(found.size[side] for side in "hw") < 60 and found.bytes_moved() < workload.bytes_moved()


def test_a_database_of_another_capability_gives_way_to_the_packages(gpu):
    gpu.db = store_rows(gpu, matmul.workload(64, 64, 64, dtype="float32"))
    gpu.device.arch = lookup("sm_75")
    assert shipped.fill(gpu)["from"].endswith("sm_75.db")
    with gpu.store() as store:
        assert {row.arch for row in store.rows(Kernel)} == {"sm_75"}
