"""Predicted times of the array library's several calls, and the choice between them and a fused kernel."""

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels
from gensor_database import PRETUNED, Record, Store
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.calls.arguments import Operands, Operation, operations, resolve
from gensor_kernels.dispatch.calls.fallback import evaluate
from gensor_kernels.dispatch.functions import grouped_matmul
from gensor_kernels.dispatch.observe.dry_run import Question
from gensor_kernels.dispatch.plans import unfused
from gensor_kernels.dispatch.plans.make import choose
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library, load
from gensor_kernels.machine import library_times
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from tests.dispatch.calls import CALLS, IMAGE, TAPS
from tests.doubles.device import FakeDevice, Race, zero_product
from tests.doubles.kernels import asked as product
from tests.doubles.kernels import kernels, put

B200 = lookup("b200")
HALF, BFLOAT16 = np.float16, np.dtype(ml_dtypes.bfloat16)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


@pytest.fixture
def on(monkeypatch, tmp_path):
    """on(part, found) makes the runtime of public functions: `found` kernels, else those that are shipped."""
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "user.db"))

    def make_runtime(part, found=None, **outcome):
        device = FakeDevice(part, clock=Race(**outcome), multiply=zero_product)  # products cost nothing
        shelf = load.library(device.arch) if found is None else library.Library(library.Contents(found))
        return put(monkeypatch, Runtime(device, shelf))

    return make_runtime


def question_of(function, *arguments, **keywords):
    """The request of a public function to the tiers: a kind of call and its operands."""
    with current_runtime().dry_run():
        try:
            function(*arguments, **keywords)
        except Question as question:
            return question.call, question.operands
    raise AssertionError("nothing is computed")


def predict(*arguments):
    """The time of the library's way of a product on a B200."""
    return unfused.predict(*product(Runtime(FakeDevice("b200"), library.Library()), *arguments))


EPILOGUES = {
    "simple": [("scale", 2), ("bias", zeros(24)), ("add", zeros(16, 24)), "relu6", "cast", ("mul", zeros(24))],
    "activations": ["gelu", "gelu_tanh", "silu", "tanh", "sigmoid", ("mask", zeros(16, 24, dtype=bool), -1.0)],
}


def test_products_are_counted_as_they_are_computed():
    """The counted operations are those of the real call, and give the same shape and dtype."""
    for dtype in (np.float64, np.float32, HALF, BFLOAT16, np.complex64):
        for epilogue in ("simple", "activations", "none"):
            for lead in ((), (3,)):
                if np.dtype(dtype).kind == "c" and epilogue != "none":
                    steps = (Operation("scale", None, 2j), Operation("bias", zeros(24)))
                else:
                    steps = operations(epilogue=EPILOGUES.get(epilogue, ()))
                a, b = zeros(*lead, 16, 32, dtype=dtype), zeros(*lead, 32, 24, dtype=dtype)
                call = resolve(a, b, None, steps)
                counting = unfused._Library(B200)
                expected = evaluate(FakeDevice(), call, a, b, steps)
                (x, y), _, counted = counting.operands(Operands((a, b), None, steps))
                result = evaluate(counting, call, x, y, counted)
                assert (result.shape, result.dtype) == (expected.shape, expected.dtype), (dtype, epilogue, lead)
                assert counting.time.us >= B200.launch_us and predict(a, b, None, steps).us > 0


def test_predictions_for_a_database_take_few_python_calls():
    """`gensor-tune show` makes one for every record."""
    with Store.open(PRETUNED / "sm_87.db", readonly=True) as store:
        workloads = [Workload.from_json(record.key) for record in store.rows(Record)]
    part, calls = lookup("sm_87"), 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    for profile in (None, count):  # what is imported and kept for later is not counted
        unfused.predict_workload.cache_clear()
        sys.setprofile(profile)
        try:
            found = [unfused.predict_workload(each, part) for each in workloads]
        finally:
            sys.setprofile(None)
    assert len(found) > 700 and calls < 280 * len(found)


#: Calls that the library makes of several of its own.
COMPOSED = {
    *("matmul, gate", "matmul, norm", "matmul, prologue", "matmul, mixed", "linear, prologue"),
    *("linear, int8 weights", "linear, int4 weights", "scaled_matmul"),
    *(name for name in CALLS if name.startswith(("conv", "attention"))),
} - {"conv2d, 1 x 1", "attention, sequences", "attention, pages"}


@pytest.mark.parametrize("name", sorted(COMPOSED))
def test_functions_are_counted_as_they_are_computed(on, caplog, name):
    runtime = on("b200", {})
    public, arguments, keywords = CALLS[name]
    base, operands = question_of(public, *arguments, **keywords)
    inputs, _, steps = operands
    function, real = base.function, FakeDevice()
    value = function.library(real, inputs, base.parameters, base.math)
    expected = function.finish(real, value, steps, base.parameters, base.result.dtype)
    counting = unfused._Library(runtime.device.arch)
    counted = counting.operands(operands)
    value = function.library(counting, counted.inputs, base.parameters, base.math)
    result = function.finish(counting, value, counted.steps, base.parameters, base.result.dtype)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    assert unfused.predict(base, operands) == pytest.approx(counting.time) and not caplog.records


def test_each_operation_takes_its_own_time():
    a, b, out = zeros(4096, 2048), zeros(2048, 4096), zeros(4096, 4096)
    steps = (Operation("bias", zeros(4096)), Operation("relu"))
    found = predict(a, b, None, steps)
    nbytes = a.nbytes + b.nbytes + out.nbytes
    alone = library_times.product_time("float32", "ieee", 1, 4096, 4096, 2048, nbytes, B200)
    passes = [library_times.pass_time(2 * out.nbytes + more, B200) for more in (4 * 4096, 0)]
    assert found == pytest.approx(alone + passes[0] + passes[1])
    assert predict(a, b, out, steps) == found  # the last operation writes to `out`
    small, steps = [zeros(8, 8)] * 2, (Operation("tanh"), Operation("relu"))
    assert predict(*small, None, steps).us == pytest.approx(3 * B200.launch_us)
    batched = [zeros(4, 1024, 1024, dtype=HALF)] * 2  # CuPy converts them to float32, and the result back
    assert predict(*batched).us > 4 * 2 * 1024**3 / B200.peak("float32") * 1e6


def measured_on_an_h100():
    """Workloads of benchmarks/results with the times of CuPy's calls and what is predicted."""
    part, path = lookup("h100-sxm"), Path(__file__).parents[3] / "benchmarks/results/h100-sxm.jsonl.gz"
    found = []
    for line in gzip.decompress(path.read_bytes()).splitlines():
        row = json.loads(line)
        us = row.get("vendors_us", {}).get("cupy")
        if us is not None:
            workload = Workload.from_json(row["key"])
            time = unfused.predict_workload(workload, part)
            if time is not None:
                found.append((workload, us, time))
    return found


def class_of(workload):
    eight = workload.dtype.get("a", "").startswith("float8")
    single = workload.math == "tf32" and "tf32"
    if workload.operator == "matmul" and not workload.epilogue:
        return "8-bit floats" if eight else single or "products"
    return workload.operator.partition("_")[0]


#: The largest median error of calls above 50 us by class, 1.3 times what it is.
ERRORS = {"products": 0.11, "tf32": 0.035, "8-bit floats": 0.06, "attention": 0.13, "softmax": 0.34, "layernorm": 0.165}


def test_cupys_times_on_an_h100_are_predicted():
    """Shares were set by these times (library_times.toml); short calls wait for Python."""
    every = measured_on_an_h100()
    assert len(every) > 115
    for name, error in ERRORS.items():
        long = [abs(time.us / us - 1) for workload, us, time in every if class_of(workload) == name and time.us > 50]
        assert np.median(long) < error, name
    products = [(us, time) for workload, us, time in every if class_of(workload) in ("products", "tf32")]
    others = [(us, time) for workload, us, time in every if class_of(workload) not in ("products", "tf32")]
    assert len(products) > 35 and len(others) > 80
    for times, error in ((products, 0.12), (others, 0.18)):
        assert np.median([abs(time.us / us - 1) for us, time in times]) < error
        assert np.mean([time.low <= us <= time.high for us, time in times]) >= 0.8
        assert np.mean([us < time.low for us, time in times]) < 0.05  # a choice trusts the low end


def test_large_products_are_as_slow_as_the_power_limit_makes_them():
    """cuBLASLt took 359 and 379 us for 4096 cubed in TF32 on an H100 (benchmarks/results)."""
    nbytes, h100 = 3 * 4 * 4096**2, lookup("h100-sxm")
    given = ("float32", "tf32", 1, 4096, 4096, 4096, nbytes)
    assert 359 < library_times.product_time(*given, h100).us < 379
    cool = replace(h100, sustained={})
    assert library_times.product_time(*given, cool).us < 310


def test_reductions_of_long_rows_wait_for_one_block_each():
    """CuPy took 254 us for the sum of 1,048,575 float64 on an H100."""
    nbytes, h100 = 8 * 1048575, lookup("h100-sxm")
    alone = library_times.pass_time(nbytes, h100, "reductions", 1).us
    assert alone == pytest.approx(254, rel=0.1) and alone > 20 * library_times.pass_time(nbytes, h100, "reductions").us
    many = library_times.pass_time(nbytes, h100, "reductions", 4096)
    assert many == library_times.pass_time(nbytes, h100, "reductions")


def test_an_array_that_is_read_twice_is_counted_once():
    counting = unfused._Library(B200)
    x = counting.new((4096, 4096), np.float32)
    x * x
    assert counting.time == library_times.pass_time(2 * x.nbytes, B200)
    x += counting.new(x.shape, x.dtype)  # is read and written
    assert counting.time == library_times.pass_time(2 * x.nbytes, B200) + library_times.pass_time(3 * x.nbytes, B200)


def test_calls_without_a_predicted_time_of_the_library(on, caplog):
    for a, wide in ((zeros(16, 16, dtype=HALF), "float32"), (zeros(16, 16, dtype=np.int8), "int32")):
        asked = product(Runtime(FakeDevice("b200"), library.Library()), a, a, None, (), wide)
        assert unfused.predict_substitute(*asked) is None and (unfused.predict(*asked) is None) == (a.dtype == np.int8)
    on("b200", {})
    base, operands = question_of(gensor_kernels.conv2d, IMAGE.astype(np.int8), TAPS.astype(np.int8))
    assert unfused.predict(base, operands) is None and not caplog.records
    assert not grouped_matmul.GROUPED_MATMUL.is_substitute(
        None
    )  # the library reads the groups' ends, for which the host waits


def test_operations_that_cannot_be_counted_are_logged(caplog, monkeypatch):
    a = zeros(16, 16)
    monkeypatch.delattr(unfused._Library, "each")
    with caplog.at_level("WARNING", "gensor_kernels"):
        assert predict(a, a, None, (Operation("relu"),)) is None
    assert "could not be predicted" in caplog.text


# ---- the choice

SQUARES = zeros(2048, 2048, dtype=HALF), zeros(2048, 2048, dtype=HALF)


def first(result):
    return float(result[0, 0])


def relu(a, b):
    return gensor_kernels.matmul(a, b, activation="relu")


def gate(a, b):
    return gensor_kernels.matmul(a, b, activation="reglu")


@pytest.fixture
def on_slow(on):
    """on_slow(public) makes the runtime of a B200 whose kernels multiply by mma.sync.

    This is a quarter of the part's rate, more than fusion saves of a large product.
    """

    def make_runtime(public, **outcome):
        on("b200", {})
        _, lowered = choose(*question_of(public, *SQUARES), False)
        return on("b200", kernels(lowered.problem.workload), **outcome)

    return make_runtime


@pytest.mark.parametrize("part", ["b200", "h100-sxm", "rtx-3090"])
def test_shipped_kernels_serve_a_fused_call(part, on):
    on(part)
    small = (zeros(64, 768, dtype=HALF), zeros(768, 768, dtype=HALF))
    for operands in (SQUARES, small):
        why = gensor_kernels.explain(gensor_kernels.matmul, *operands, activation="relu")
        assert why.tier in (2, 3), why


def test_a_fused_call_is_never_predicted_slower_than_the_librarys(on_slow):
    on_slow(relu)
    why = gensor_kernels.explain(gensor_kernels.matmul, *SQUARES, activation="relu")
    assert why.tier == 4, why
    assert "on b200 our best kernel takes" in why.reason and "no timing of both shows a win yet" in why.reason


@pytest.mark.parametrize(("ours", "expected"), [(5.0, [0, 55, 55]), (20.0, [0, 0, 0])])
def test_a_race_decides(ours, expected, on, on_slow):
    runtime = on_slow(relu, ours=ours)
    assert [first(relu(*SQUARES)) for _ in range(3)] == expected and len(runtime.device.races) == 1
    runtime = on_slow(gate, ours=ours)
    assert "the library's calls" in gensor_kernels.explain(gensor_kernels.matmul, *SQUARES, activation="reglu").reason
    assert [first(gate(*SQUARES)) for _ in range(3)] == expected and len(runtime.device.races) == 1
    _, lowered = choose(*question_of(gate, *SQUARES), False)
    on("rtx-3090", kernels(lowered.problem.workload))
    assert first(gate(*SQUARES)) == 55


@pytest.mark.parametrize("fused", [gate, relu])
def test_kernels_are_loaded_for_graph_capture(fused, on_slow, monkeypatch):
    """The library's product cannot be recorded: inside a capture a kernel serves that the second run has loaded."""
    monkeypatch.setenv("GENSOR_RACE", "0")
    runtime = on_slow(fused)
    assert [first(fused(*SQUARES)) for _ in range(2)] == [0, 0] and len(runtime.device.loaded) == 1
    runtime.device.is_capturing = True
    assert first(fused(*SQUARES)) == 55
    runtime.device.is_capturing = False
    assert first(fused(*SQUARES)) == 0
