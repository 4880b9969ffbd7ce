"""benchmarks.device with operators of every kind: the library's call, PyTorch's, parts, public functions."""

from types import SimpleNamespace
from unittest import mock
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.gpu import public_calls
from benchmarks.gpu.families import OPERATORS
from benchmarks.gpu.harness.rehearsal import RehearsedDevice
from benchmarks.gpu.kernels import output_blocks, real_size
from benchmarks.gpu.kernels.fitting import fitting, shrunk
from benchmarks.gpu.vendors import registry
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.functions import vendor_call
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import MODULES
from gensor_kernels.operators.attention import attention
from gensor_kernels.operators.attention.forms import FORMS
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import decode
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.windows import conv, pooling
from gensor_tuner.measure.operands import Noise, Operands
from gensor_tuner.shapes.reader import read_shapes
from tests.campaign_size import sample

ARCH = lookup("sm_87")
ROWS = read_shapes(OPERATORS)
#: Tolerance relative to the root mean square, for compositions that round to the operands' type in between.
NEAR = {"float16": 1e-2, "bfloat16": 6e-2, "int8": 1e-6}


@pytest.fixture(scope="module")
def session():
    device = RehearsedDevice(ARCH)
    vendors = "cupy", "torch", "compiled"
    made = SimpleNamespace(device=device, arch=ARCH, emulate=True, vendors=vendors)
    made.is_fault, made.synchronize = lambda error: False, lambda: None
    return made


@pytest.fixture(scope="module")
def noise(session):
    return Noise(session.device)


def expected(operands):
    """Return the float64 reference of the whole output, its arrays and steps."""
    arrays = {name: block.view(np) for name, block in operands.blocks.items() if block is not operands.out}

    def decoded(block):
        return None if block is None else decode("int8" if block.dtype == "bool" else block.dtype, block.view(np))

    steps = [Step(name, decoded(block), scalar) for name, block, scalar in operands.steps]
    made = operands.operator.expect(operands.workload, arrays, steps, integer_steps=operands.integer_steps)
    return made, arrays, steps


def compare_parts(operands, made, arrays, steps=(), atol=1e-9):
    """Compare the reference of every part with the whole; return how often each element of the output was covered."""
    out, workload = operands.operator.names[-1], operands.workload
    covered = np.zeros(operands.out.shape, int)
    for part in output_blocks.parts(workload):
        taken = {name: output_blocks.cut(each, part.slices[name]) for name, each in arrays.items()}
        there = part.slices[out]
        cut = [
            step if step.operand is None else Step(step.name, output_blocks.cut(step.operand, there), step.scalar)
            for step in steps
        ]
        found = operands.operator.expect(part.workload, taken, cut, integer_steps=operands.integer_steps)
        np.testing.assert_allclose(found.values, output_blocks.cut(made.values, there), rtol=1e-9, atol=atol)
        covered[there] += 1
    return covered


def compare_native(operands, made, root):
    workload = operands.workload
    first = operands.operator.names[0]
    rounded = "c" if workload.operator.startswith("recurrent_") else first  # whose inputs are wider than its results
    native = decode(operands.out.dtype, np.asarray(operands.vendor()()).reshape(made.values.shape))
    assert np.max(np.abs(native - made.values)) <= NEAR.get(workload.dtype[rounded], 1e-5) * root


def test_every_operator_has_a_row_and_no_row_is_wrong():
    assert not [row.error or row.unsupported for row in ROWS if row.workload is None]
    assert {row.workload.operator for row in ROWS} == set(MODULES)
    modules = {MODULES[row.workload.operator] for row in ROWS}
    assert modules == {*vendor_call.FUNCTIONS, "products.matmul"}


@pytest.mark.parametrize("row", sample(ROWS, 16), ids=lambda row: row.name)
def test_the_library_computes_every_operator_and_parts_are_the_whole(session, noise, row, monkeypatch):
    workload = shrunk(row.workload, 16)
    operands = Operands(session.device, workload, noise)
    made, arrays, steps = expected(operands)
    root = float(np.sqrt(np.mean(np.abs(made.values) ** 2)))
    wide = real_size.wide_reference(session, operands).reshape(made.values.shape)
    # In float64, the result of a prologue is not rounded to the operand's type.
    rounding = {2: 5e-2, 4: 1e-6}.get(arrays[operands.operator.names[0]].itemsize) if workload.prologue else None
    assert np.max(np.abs(wide - made.values)) <= (rounding or 1e-9) * root
    compare_native(operands, made, root)
    monkeypatch.setattr(output_blocks, "PRODUCT_WORK", max(workload.flops() / 5, 100))
    monkeypatch.setattr(output_blocks, "OTHER_WORK", max(workload.bytes_moved() / 5, 100))
    assert (compare_parts(operands, made, arrays, steps, 1e-9 * root) == 1).all()


@pytest.mark.parametrize("causal", [False, "lower_right", "upper_left"])
@pytest.mark.parametrize(("queries", "keys"), [(24, 24), (9, 31), (31, 9)])
def test_parts_of_attention_see_the_keys_they_saw(session, noise, causal, queries, keys, monkeypatch):
    workload = attention.workload(queries, keys, batch=2, heads=2, head=16, causal=causal, mask="bool")
    operands = Operands(session.device, workload, noise)
    made, arrays, _ = expected(operands)
    monkeypatch.setattr(output_blocks, "OTHER_WORK", 4000)
    assert compare_parts(operands, made, arrays, atol=1e-12).sum() >= made.values.size // 2


def windows():
    """Padding of whole windows, and on one side only; poolings that count padding."""
    yield conv.workload(n=2, h=5, w=6, c=8, k_out=8, r=2, s=3, pad_top=7, pad_bottom=4, pad_left=1, stride_h=2)
    yield conv.workload(n=1, h=6, w=6, c=16, k_out=8, r=4, s=4, stride_h=2, stride_w=2, groups=2, transposed=True)
    sides = {"pad_top": 1, "pad_bottom": 1, "pad_left": 1, "pad_right": 1}
    yield conv.workload(n=1, h=6, w=6, c=8, k_out=8, r=3, s=3, stride_h=2, stride_w=2, **sides, transposed=True)
    yield pooling.workload("max_pool2d", n=2, h=9, w=9, c=8, r=3, s=3, pad_top=1, pad_left=1)
    yield pooling.workload("avg_pool2d", n=2, h=9, w=9, c=8, r=3, s=3, **sides, count_include_pad=1, ceil_mode=1)


@pytest.mark.parametrize("workload", list(windows()), ids=lambda each: each.operator)
def test_windows_in_parts_and_by_pytorch(session, noise, workload, monkeypatch):
    pytest.importorskip("torch")
    operands = Operands(session.device, workload, noise)
    made, arrays, _ = expected(operands)
    monkeypatch.setattr(output_blocks, "PRODUCT_WORK", 2000)
    compare_parts(operands, made, arrays)
    torch = registry.Vendors(session).torch
    result = torch.wide(torch.call(operands)())
    assert tolerance_base.check(result.astype(np.float32), made).ok


SERVED = [row for row in ROWS if "int8" not in row.name]


@pytest.mark.parametrize("row", sample(SERVED, 6), ids=lambda row: row.name)
def test_pytorch_computes_every_operator(session, noise, row):
    pytest.importorskip("torch")
    workload = shrunk(row.workload, 16)
    operands = Operands(session.device, workload, noise)
    made, *_ = expected(operands)
    torch = registry.Vendors(session).torch
    call = torch.call(operands)
    # PyTorch has no call for uneven cropping, non-square causal masks, windows, soft caps and sequences of attention,
    # rows of no group, 8-bit floats, quantisation; none is written for recurrent layers and programs.
    if call is None:
        unlike = ("attention_fp16_causal", "ragged_fp16", "matmul_fp8", "scaled_fp8")
        forms = workload.operator in FORMS and FORMS[workload.operator].windowed
        unlike_kinds = ("weights_", "conv_transpose_", "recurrent_", "program_")
        assert row.name in unlike or forms or row.name.startswith(unlike_kinds)
        return
    root = float(np.sqrt(np.mean(np.abs(made.values) ** 2)))
    allowed = NEAR.get(workload.dtype[operands.operator.names[0]], 1e-5) * root
    assert np.max(np.abs(torch.wide(call()).reshape(made.values.shape) - made.values)) <= allowed


def named(name):
    return shrunk(next(row.workload for row in ROWS if row.name == name), 16)


def ours(operands):
    """Return a kernel that computes what CuPy does."""

    def launch():
        operands.out.view(np)[...] = operands.vendor()()

    return launch


def test_a_vendor_that_computes_something_else_is_left_out(session, noise, monkeypatch):
    workload = named("softmax_fp16")
    vendors = registry.Vendors(session)
    good, refused = vendors.agreeing(workload, noise, ours, ("cupy",))
    assert good.keys() == {"cupy"} and not refused
    later = good["cupy"]
    assert later(Operands(session.device, workload, noise, 1)) is not None
    monkeypatch.setattr(Operands, "typed", lambda *given: 1 / 0)
    assert later(Operands(session.device, workload, noise, 1)) is None
    monkeypatch.undo()

    def other(operands):  # the library writes to the same array before
        return lambda: operands.out.view(np).fill(0)

    wrong, refused = vendors.agreeing(workload, noise, other, ("cupy",))
    assert not wrong and "differ" in refused["cupy"]
    monkeypatch.setattr(Operands, "vendor", Mock(side_effect=OSError("libcudnn.so.9: cannot open")))
    _, refused = vendors.agreeing(workload, noise, ours, ("cupy",))
    assert "libcudnn" in refused["cupy"]


def test_compiled_calls_go_through_torch_compile(session, noise, monkeypatch):
    torch = pytest.importorskip("torch")
    seen = []
    monkeypatch.setattr(torch, "compile", lambda function, **how: seen.append(how) or function)
    workload = named("layernorm_fp32")
    operands = Operands(session.device, workload, noise)
    made = registry.Vendors(session).torch
    made.emulated = False
    call = made.call(operands, compiled=True)
    assert made.call(Operands(session.device, workload, noise, 1), compiled=True)() is not None  # not compiled again
    assert seen == [{"dynamic": False, "mode": "max-autotune-no-cudagraphs"}] and call() is not None


def test_wrong_numbers_anywhere_are_seen_in_the_whole(session, noise):
    workload = named("depthwise_fp16_nhwc")
    operands = Operands(session.device, workload, noise)
    operands.out.view(np)[...] = operands.vendor()()
    assert real_size.whole(session, operands) == {"whole": 0}
    operands.out.view(np)[-1, 0] = operands.out.view(np)[-1, 1]  # a row in the wrong place
    found = real_size.whole(session, operands)
    assert found["outcome"] == "wrong" and 0 < found["whole"] < 0.5


@pytest.mark.parametrize("name", sample([*public_calls.calls(True)], 12))
def test_public_calls_are_right_on_the_host_itself(name):
    shown = public_calls.calls(True)[name]
    arrays = public_calls.draw(shown)
    with mock.patch.object(current, "only", object()):  # the Runtime of the one GPU of a machine
        wanted = public_calls.reference(shown, arrays)
    assert wanted.dtype.kind in "fci" and np.isfinite(wanted).all()
    if shown.dtype == "int8":  # the sums are exact
        exact = arrays["x"].astype(int) @ arrays["y"] + (arrays["b"] if name.endswith("relu") else 0)
        assert (wanted == (np.maximum(exact, 0) if name.endswith("relu") else exact)).all()
    kind = np.int64 if wanted.dtype.kind == "i" else np.complex64 if wanted.dtype.kind == "c" else shown.dtype
    assert public_calls.error(wanted.astype(kind), wanted) <= 1
    spoiled = wanted.astype(kind)
    spoiled.flat[0] += 1
    assert public_calls.error(spoiled, wanted) > 1


def test_memory_bounds_the_sizes_of_any_operator():
    runtime = SimpleNamespace(memGetInfo=lambda: (30 << 20, 1 << 33))
    pool = SimpleNamespace(free_all_blocks=lambda: None)
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime), get_default_memory_pool=lambda: pool)
    gpu = SimpleNamespace(emulate=False, device=SimpleNamespace(xp=cupy))
    for row in ROWS:
        found = fitting(gpu, row.workload)
        assert found.class_key() == row.workload.class_key()
        cuttable = [extent for axis, extent in output_blocks.cuts_of(found).extents.items() if axis != "rows"]
        assert found.bytes_moved() <= 10 << 20 or max(cuttable, default=1) == 1


def test_without_pytorch_attention_is_left_out_with_the_reason_and_products_do_not_miss_it(session, noise, monkeypatch):
    monkeypatch.setattr(registry, "Torch", Mock(side_effect=ImportError("No module named 'torch'")))
    monkeypatch.setattr(session, "vendors", ("cupy", "torch", "flash", "cudnn"))
    vendors = registry.Vendors(session)
    good, refused = vendors.agreeing(attention.workload(24, 24, heads=2, head=16), noise, ours, registry.EAGER)
    assert good.keys() == {"cupy"} and refused.keys() == {"torch", "flash", "cudnn"}
    assert "No module named 'torch'" in refused["flash"]
    good, refused = vendors.agreeing(matmul.workload(8, 16, 24, dtype="float32"), noise, ours, registry.EAGER)
    assert good.keys() == {"cupy"} and refused.keys() == {"torch"}
