"""matmul inside `emulated(...)`: stored kernels, databases, staging and refusals; tests/public_cases draws calls."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from tests.doubles.stored import stock_classes

pytestmark = pytest.mark.usefixtures("no_databases")
CLASSES = {"sm_87": {
    (dtype, dtype, "ieee"): [("sss", False, family, False)]
    for dtype, family in (("float32", "contraction_simt"), ("float64", "contraction_simt"), ("int8", "contraction_mma"))
}}  # fmt: skip
ONE_CLASS = {"sm_87": {("float16", "float16", "ieee"): [("knn", True, "contraction_mma", True)]}}


def one_call():
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in [(80, 96), (96, 72)])
    return a, b, rng.standard_normal(72).astype(np.float16)


def test_arrays_that_need_a_temporary(kernels):
    """Mixed dtypes, a result of another dtype, axes that cannot be merged, odd addresses, overlap."""
    rng = np.random.default_rng(4)

    def agree(a, b, **keywords):
        found = gensor_kernels.matmul(a, b, **keywords)
        before = why(a, b, **keywords).staged
        assert "temporary" in before or "operands are" in before
        np.testing.assert_allclose(found, a.astype(float) @ b.astype(float), rtol=1e-4, atol=1e-4)

    def why(a, b, **keywords):
        return gensor_kernels.explain(gensor_kernels.matmul, a, b, **keywords)

    a, b = rng.standard_normal((20, 30)).astype(np.float16), rng.standard_normal((30, 24)).astype(np.float32)
    memory = rng.standard_normal((64, 64)).astype(np.float32)
    with gensor_kernels.emulated("sm_87"):
        agree(a, b)
        agree(b, b.T, out=np.zeros((30, 30)))
        agree(b, b.T, out=np.broadcast_to(np.zeros((30, 1), np.float32), (30, 30)).copy()[:, ::-1].astype(float))
        axes = rng.standard_normal((4, 4, 4, 4, 5, 6)).astype(np.float32)[::2, ::2, ::2, ::2]
        agree(axes, axes.swapaxes(0, 3).swapaxes(-1, -2))
        raw = np.zeros(4 * 600 + 1, np.uint8)
        odd = raw[1:].view(np.float32).reshape(20, 30)
        odd[...] = b.reshape(-1)[:600].reshape(20, 30)
        agree(odd, b)
        product = memory[:32] @ memory[:, :32][:64]
        assert gensor_kernels.matmul(memory[:32], memory[:, :32], memory[16:48, :32]) is not None
        np.testing.assert_allclose(memory[16:48, :32], product, rtol=1e-4, atol=1e-4)


def test_requantised_products(kernels):
    """int8 in and out, scaled in float32: truncated as a conversion to an integer is."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(-128, 128, (50, 90), np.int8), rng.integers(-128, 128, (90, 70), np.int8)
    bias = rng.integers(-9000, 9000, 70).astype(np.int32)
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.matmul(a, b, epilogue=[("bias", bias), ("scale", 2.0**-12), "relu"])
    exact = np.maximum((a.astype(np.int64) @ b.astype(np.int64) + bias) * 2.0**-12, 0)
    assert found.dtype == np.int8 and exact.max() < 128
    np.testing.assert_array_equal(found, np.trunc(exact))


def test_corrupting_the_kernel_changes_the_result(tmp_path, monkeypatch):
    a, b, bias = one_call()
    product = a.astype(float) @ b.astype(float)

    def alter(text):
        assert text.count("v[i] = v[i] + x[i]") == 1
        return text.replace("v[i] = v[i] + x[i]", "v[i] = v[i] - x[i]")

    def result(name, change):
        stored = stock_classes(tmp_path / name, ONE_CLASS, change)
        monkeypatch.setenv("GENSOR_DB", str(tmp_path / name))
        with gensor_kernels.emulated("sm_87"):
            why = gensor_kernels.explain(gensor_kernels.matmul, a, b, bias=bias)
            assert why.tier == 3 and why.kernel in stored
            return gensor_kernels.matmul(a, b, bias=bias).astype(float), why

    right, served = result("right.db", lambda text: text)
    np.testing.assert_allclose(right, product + bias, atol=0.05)
    wrong, other = result("altered.db", alter)
    assert other.program == served.program and other.kernel != served.kernel
    np.testing.assert_allclose(wrong, product - bias, atol=0.05)


def test_code_of_an_untrusted_database_is_regenerated(tmp_path, monkeypatch):
    """A file of another user is data: its Programs are used, its sources are not."""
    a, b, bias = one_call()
    path = tmp_path / "site.db"
    stock_classes(path, ONE_CLASS, lambda text: "#error from the file\n" + text)
    path.chmod(0o666)
    monkeypatch.setenv("GENSOR_SITE_DB", str(path))
    with gensor_kernels.emulated("sm_87"):
        why = gensor_kernels.explain(gensor_kernels.matmul, a, b, bias=bias)
        found = gensor_kernels.matmul(a, b, bias=bias)
    assert why.tier == 3 and "stored kernels" in why.reason
    np.testing.assert_allclose(found.astype(float), a.astype(float) @ b.astype(float) + bias, atol=0.05)


def test_without_a_database_the_default_programs_serve(monkeypatch):
    a, b, bias = one_call()
    with gensor_kernels.emulated("orin-nano-8gb"):
        why = gensor_kernels.explain(gensor_kernels.matmul, a, b, bias=bias, activation="relu")
        found = gensor_kernels.matmul(a, b, bias=bias, activation="relu")
    assert "default Programs" in why.reason and why.kernel and why.family in str(why)
    np.testing.assert_allclose(found.astype(float), np.maximum(a.astype(float) @ b.astype(float) + bias, 0), atol=0.05)


def test_calls_without_a_kernel_raise(kernels):
    a = np.zeros((3, 3), np.int64)
    with gensor_kernels.emulated("sm_87"):
        with pytest.raises(gensor_kernels.UnsupportedError, match="int64"):
            gensor_kernels.matmul(a, a)
        with pytest.raises(gensor_kernels.UnsupportedError, match="7 epilogue operations"):
            gensor_kernels.matmul(a * 1.0, a * 1.0, epilogue=["relu"] * 7)
        with pytest.raises(ValueError, match="mismatch in its core dimension"):
            gensor_kernels.matmul(a, a[:2])
        out = np.zeros((3, 3))
        out.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            gensor_kernels.matmul(a * 1.0, a * 1.0, out)
        why = gensor_kernels.explain(gensor_kernels.matmul, a, a)
        assert why.tier == 4 and why.kernel is None


def test_contexts_nest_and_names_are_checked():
    with pytest.raises(gensor_kernels.UnknownArchError, match="sm_87"), gensor_kernels.emulated("sm_1"):
        pass
    from gensor_kernels.dispatch.api.current import current_runtime

    with gensor_kernels.emulated("h200"):
        with gensor_kernels.emulated("sm_75"):
            assert current_runtime().device.arch is lookup("sm_75")
        assert current_runtime().device.arch.part == "h200"
