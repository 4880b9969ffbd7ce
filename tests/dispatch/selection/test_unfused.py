"""What the array library's several calls are predicted to take, and who serves a fused call by it."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.calls.arguments import Operation, operations, resolve
from gensor_kernels.dispatch.calls.fallback import evaluate
from gensor_kernels.dispatch.functions import grouped
from gensor_kernels.dispatch.observe.dry_run import Question
from gensor_kernels.dispatch.plans import make, unfused
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library, load
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY
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

    def made(part, found=None, **outcome):
        device = FakeDevice(part, clock=Race(**outcome), multiply=zero_product)  # products cost nothing
        shelf = load.library(device.arch) if found is None else library.Library(library.Contents(found))
        return put(monkeypatch, Runtime(device, shelf))

    return made


def asked(function, *arguments, **keywords):
    """What a public function asks of the tiers: a kind of call, inputs, out and epilogue."""
    with current_runtime().dry_run():
        try:
            function(*arguments, **keywords)
        except Question as question:
            return question.call, question.inputs, question.out, question.epilogue
    raise AssertionError("nothing is computed")


def predicted(*arguments):
    """Microseconds of the library's way of a product on a B200."""
    return unfused.microseconds(*product(Runtime(FakeDevice("b200"), library.Library()), *arguments))


EPILOGUES = {
    "simple": [("scale", 2), ("bias", zeros(24)), ("add", zeros(16, 24)), "relu6", "cast", ("mul", zeros(24))],
    "activations": ["gelu", "gelu_tanh", "silu", "tanh", "sigmoid", ("mask", zeros(16, 24, dtype=bool), -1.0)],
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, HALF, BFLOAT16, np.complex64])
@pytest.mark.parametrize("epilogue", ["simple", "activations", "none"])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_products_are_counted_as_they_are_computed(dtype, epilogue, lead):
    """The counted way ends in the array that the real one gives: each operation of it is known, and its dtype right."""
    if np.dtype(dtype).kind == "c" and epilogue != "none":
        steps = (Operation("scale", None, 2j), Operation("bias", zeros(24)))
    else:
        steps = operations(epilogue=EPILOGUES.get(epilogue, ()))
    a, b = zeros(*lead, 16, 32, dtype=dtype), zeros(*lead, 32, 24, dtype=dtype)
    call = resolve(a, b, None, steps)
    real, counting = FakeDevice(), unfused._Library(B200)
    expected = evaluate(real, call, a, b, steps)
    found = evaluate(counting, call, counting.array(a), counting.array(b), counting.steps(steps))
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype) and counting.us >= B200.launch_us
    assert predicted(a, b, None, steps) > 0


q, kv = zeros(2, 4, 8, 16, dtype=HALF), zeros(2, 2, 12, 16, dtype=HALF)
image, filters = zeros(2, 6, 9, 10, dtype=HALF), zeros(8, 6, 3, 3, dtype=HALF)
FUNCTIONS = {
    "gate": partial(gensor_kernels.matmul, zeros(16, 32), zeros(32, 48), bias=zeros(48), activation="geglu"),
    "norm": partial(
        gensor_kernels.matmul,
        *(zeros(16, 32, dtype=HALF), zeros(32, 24, dtype=HALF)),
        epilogue=[("add", zeros(16, 24)), "layernorm", ("mul", zeros(24))],
    ),
    "rmsnorm": partial(gensor_kernels.matmul, zeros(3, 16, 32), zeros(3, 32, 24), epilogue=["rmsnorm"]),
    "prologue": partial(
        gensor_kernels.linear,
        *(zeros(16, 32, dtype=BFLOAT16), zeros(24, 32, dtype=BFLOAT16)),
        prologue=[("mul", zeros(32)), "gelu"],
    ),
    "int8 weights": partial(gensor_kernels.linear, zeros(8, 64), zeros(24, 64, dtype=np.int8), scales=zeros(24, 2)),
    "int4 weights": partial(
        gensor_kernels.linear,
        *(zeros(8, 64, dtype=HALF), zeros(24, 32, dtype=np.uint8)),
        scales=zeros(24, 2, dtype=HALF),
        zeros=zeros(24, 2, dtype=np.uint8),
    ),
    "8-bit floats": partial(
        gensor_kernels.matmul, *(zeros(16, 32, dtype=np.uint8), zeros(32, 24)), bias=zeros(24), dtype_a="float8_e4m3fn"
    ),
    "attention": partial(gensor_kernels.attention, q, kv, kv, causal=True),
    "masked attention": partial(gensor_kernels.attention, q, kv, kv, mask=zeros(8, 12, dtype=bool)),
    "biased attention": partial(gensor_kernels.attention, q, kv, kv, mask=zeros(4, 8, 12)),
    "convolution": partial(gensor_kernels.conv2d, image, filters, zeros(8), padding=1, activation="silu"),
    "groups": partial(gensor_kernels.conv2d, image, zeros(8, 3, 3, 3, dtype=HALF), stride=2, groups=2),
    "channels last": partial(
        gensor_kernels.conv2d, zeros(2, 9, 10, 6), zeros(8, 3, 3, 6), layout="NHWC", add=zeros(2, 7, 8, 8)
    ),
    "depthwise": partial(gensor_kernels.conv2d, image, zeros(6, 1, 3, 3, dtype=HALF), groups=6, activation="relu6"),
    "transposed": partial(gensor_kernels.conv_transpose2d, image, zeros(6, 8, 3, 3, dtype=HALF), stride=2),
    "convolution, prologue": partial(gensor_kernels.conv2d, image, filters, prologue=[("mul", zeros(6)), "relu"]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_counted_as_they_are_computed(name, on, caplog):
    runtime = on("b200", {})
    base, inputs, out, steps = asked(FUNCTIONS[name])
    function, real = base.function, FakeDevice()
    value = function.library(real, inputs, base.parameters, base.math)
    expected = function.finish(real, value, steps, base.parameters, base.result.dtype)
    counting = unfused._Library(runtime.device.arch)
    value = function.library(counting, [counting.array(x) for x in inputs], base.parameters, base.math)
    found = function.finish(counting, value, counting.steps(steps), base.parameters, base.result.dtype)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert unfused.microseconds(base, inputs, out, steps) == pytest.approx(counting.us) and not caplog.records


def test_a_product_takes_a_share_of_its_bound_and_each_operation_its_bytes():
    a, b, out = zeros(4096, 2048), zeros(2048, 4096), zeros(4096, 4096)
    steps = (Operation("bias", zeros(4096)), Operation("relu"))
    found = predicted(a, b, None, steps)
    product = 2 * 4096 * 4096 * 2048 / B200.peak("float32") / unfused.VENDOR_SHARE * 1e6
    passes = (4 * out.nbytes + 4 * 4096) / (B200.dram_gb_s * 1e9 * DRAM_EFFICIENCY) * 1e6
    assert found == pytest.approx(product + passes)
    copied = predicted(a, b, out, steps)
    assert copied == pytest.approx(found + 2 * out.nbytes / (B200.dram_gb_s * 1e9 * DRAM_EFFICIENCY) * 1e6)
    small, steps = [zeros(8, 8)] * 2, (Operation("tanh"), Operation("relu"))
    assert predicted(*small, None, steps) == pytest.approx(3 * B200.launch_us)
    batched = [zeros(4, 1024, 1024, dtype=HALF)] * 2  # CuPy converts them to float32, and the result back
    assert predicted(*batched) > 4 * 2 * 1024**3 / B200.peak("float32") * 1e6


def test_the_library_is_no_substitute_where_it_rounds_waits_or_has_integers(on, caplog):
    for a, wide in ((zeros(16, 16, dtype=HALF), "float32"), (zeros(16, 16, dtype=np.int8), "int32")):
        assert predicted(a, a, None, (), wide) is None
    on("b200", {})
    base, inputs, out, steps = asked(gensor_kernels.conv2d, image.astype(np.int8), filters.astype(np.int8))
    assert unfused.microseconds(base, inputs, out, steps) is None and not caplog.records
    assert not grouped.RAGGED.stands_in  # its library way reads the groups' ends, for which the host waits


def test_what_cannot_be_counted_does_not_reach_the_call(caplog, monkeypatch):
    a = zeros(16, 16)
    monkeypatch.setattr(unfused, "_PASSES", frozenset())
    with caplog.at_level("WARNING", "gensor_kernels"):
        assert predicted(a, a, None, (Operation("relu"),)) is None
    assert "could not be predicted" in caplog.text


# ---- who serves

SQUARES = zeros(2048, 2048, dtype=HALF), zeros(2048, 2048, dtype=HALF)


@pytest.mark.parametrize(("part", "tier"), [("b200", 4), ("h100-sxm", 3), ("rtx-3090", 3)])
def test_a_fused_call_is_never_predicted_slower_than_the_librarys(part, tier, on):
    """mma.sync has a quarter of a B200's rate, more than fusion saves of a large product; elsewhere kernels serve."""
    on(part)
    why = gensor_kernels.explain(gensor_kernels.matmul, *SQUARES, activation="relu")
    assert why.tier in ((4,) if tier == 4 else (2, 3)), why
    if tier == 4:
        assert f"on {part} our best kernel takes" in why.reason and "no timing of both shows a win yet" in why.reason
    small = (zeros(64, 768, dtype=HALF), zeros(768, 768, dtype=HALF))
    assert gensor_kernels.explain(gensor_kernels.matmul, *small, activation="relu").tier in (2, 3)


def test_predictions_may_be_trusted_and_the_emulator_has_no_library(on, monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    on("b200")
    assert gensor_kernels.explain(gensor_kernels.matmul, *SQUARES, activation="relu").tier in (2, 3)
    monkeypatch.delenv("GENSOR_TUNE")
    with gensor_kernels.emulated("b200"):
        assert gensor_kernels.explain(gensor_kernels.matmul, *SQUARES, activation="relu").tier in (2, 3)


def first(result):
    return float(result[0, 0])


@pytest.mark.parametrize(("ours", "expected"), [(5.0, [0, 55, 55]), (20.0, [0, 0, 0])])
def test_a_race_says_who_is_slower(ours, expected, on):
    runtime = on("b200", ours=ours)
    found = [first(gensor_kernels.matmul(*SQUARES, activation="relu")) for _ in range(3)]
    assert found == expected and len(runtime.device.races) == 1


def gate(a, b):
    return gensor_kernels.matmul(a, b, activation="reglu")


@pytest.mark.parametrize(("ours", "expected"), [(5.0, [0, 55, 55]), (20.0, [0, 0, 0])])
def test_functions_are_never_predicted_slower_either(ours, expected, on):
    on("b200", {})
    _, lowered = make.choose(*asked(gate, *SQUARES), False)
    runtime = on("b200", kernels(lowered.problem.workload), ours=ours)
    assert "the library's calls" in gensor_kernels.explain(gensor_kernels.matmul, *SQUARES, activation="reglu").reason
    assert [first(gate(*SQUARES)) for _ in range(3)] == expected and len(runtime.device.races) == 1
    on("rtx-3090", kernels(lowered.problem.workload))
    assert first(gate(*SQUARES)) == 55


@pytest.mark.parametrize("fused", [gate, partial(gensor_kernels.matmul, activation="relu")])
def test_kernels_stand_by_for_graph_capture(fused, on, monkeypatch):
    """The library's product cannot be recorded: inside a capture a kernel serves that the second run has loaded."""
    monkeypatch.setenv("GENSOR_RACE", "0")
    found = None
    if fused is gate:
        on("b200", {})
        found = kernels(make.choose(*asked(gate, *SQUARES), False)[1].problem.workload)
    runtime = on("b200", found)
    assert [first(fused(*SQUARES)) for _ in range(2)] == [0, 0] and len(runtime.device.loaded) == 1
    runtime.device.is_capturing = True
    assert first(fused(*SQUARES)) == 55
    runtime.device.is_capturing = False
    assert first(fused(*SQUARES)) == 0
