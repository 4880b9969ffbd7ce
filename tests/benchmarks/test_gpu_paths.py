"""Paths of benchmarks.device that a rehearsal does not take, also with little time, over NumPy and a fake library."""

import json
import time
from types import SimpleNamespace

import pytest

from benchmarks.gpu import facts, families, probes, shipped, timing
from benchmarks.gpu.harness.journal import Journal
from benchmarks.gpu.harness.session import Session
from benchmarks.gpu.harness.supervise import COMPLETE, OUT_OF_TIME
from benchmarks.gpu.kernels import ordering, real_size
from benchmarks.gpu.kernels import output_blocks as parts
from benchmarks.gpu.kernels.fitting import fitting, is_legal
from gensor_database.record import Kernel, Timing, Verification
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.windows import conv
from gensor_tuner.build.pool import candidate
from gensor_tuner.measure import timer
from gensor_tuner.measure.operands import Noise
from gensor_tuner.run.result import Result
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


def session(folder, arch=ARCH):
    """A session over the emulator with a library, which passes for a GPU."""
    made = Session(folder, Journal(folder / "results.jsonl"), time.monotonic() + 300)
    made.__dict__["device"] = FakeDevice(arch, emulate, xp=CUPY, multiply=wide_product)
    return made


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "lacking", lambda session, store: [])  # no operators without kernels
    return session(tmp_path)


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


@pytest.fixture
def one_operator(monkeypatch, tmp_path):
    """A database without kernels that lacks one operator; the time of the first run suffices for no kernel."""
    (tmp_path / "rows.csv").write_text("op,dtype,shape,axes\nreduce_sum,fp32,64x64,1\n")
    monkeypatch.setattr(shipped, "OPERATORS", tmp_path / "rows.csv")
    monkeypatch.setattr(shipped, "given", lambda session, store: {"from": "nothing"})
    monkeypatch.setattr(shipped, "TOP", 1)
    real = shipped.BudgetedRun

    class Late:
        elapsed = float("inf")

        def __init__(self, *given, **more):
            monkeypatch.setattr(shipped, "BudgetedRun", real)

        def rows(self, rows):
            return [(row, Result(row.workload, "failed", error="the budget was spent")) for row in rows]

    monkeypatch.setattr(shipped, "BudgetedRun", Late)


def fillings(made):
    return [event for event in made.journal.events() if event["event"] == "end" and event["item"].startswith("kernels")]


def test_operators_without_kernels_are_tuned_as_long_as_there_is_time(one_operator, tmp_path):
    made = session(tmp_path)
    assert made.work("shipped", shipped.items(made)) == COMPLETE
    assert [end["left"] for end in fillings(made)] == [1, 0]
    with made.store() as store:
        (verdict,) = store.rows(Verification)
    assert (verdict.method, verdict.outcome) == ("device", "ok")


def test_a_run_that_resumes_tunes_what_is_left(one_operator, monkeypatch, tmp_path):
    made, fill = session(tmp_path), shipped.fill

    def last(given):
        found = fill(given)
        given.deadline = 0.0
        return found

    monkeypatch.setattr(shipped, "fill", last)
    assert made.work("shipped", shipped.items(made)) == OUT_OF_TIME
    monkeypatch.setattr(shipped, "fill", fill)
    again = session(tmp_path)
    assert again.work("shipped", shipped.items(again)) == COMPLETE
    assert [end["left"] for end in fillings(made)] == [1, 0]


def test_the_first_kernels_are_of_every_kind_and_then_of_every_shipped_class(monkeypatch, tmp_path):
    monkeypatch.setattr(families, "LAYOUTS", ("kn", "kk"))
    made = session(tmp_path, lookup("sm_90"))
    known, rest = ordering.shipped_kernels(made), families.starters(made)
    found = list(ordering.order(known, rest))
    assert len(found) == len({each.name for each in found}) == len(known) + len(rest)
    of = [ordering.traits(each) for each in found]
    kinds = set().union(*of)
    assert {"plain", "split", "stream", "cluster", "dependent", "staged epilogue", "tensor maps"} <= kinds
    few = next(few for few in range(len(found)) if set().union(*of[:few]) == kinds)
    assert few <= 30
    classes = {each.workload.class_key() for each in known}
    first = found[: few + len(classes)]
    assert classes <= {each.workload.class_key() for each in first}
    assert all(each.code and each.code.cubin for each in first if " shipped " in each.name)


def test_shipped_kernels_are_verified_at_the_verifiers_cases(tmp_path):
    made = session(tmp_path)
    made.only = "^rows reduce_sum float32 k .* shipped"
    assert made.work("families", families.items(made)) == COMPLETE
    ends = made.journal.results("families")
    assert ends and all(end["outcome"] == "ok" and 0 < end["worst"] <= 1 for end in ends.values())
