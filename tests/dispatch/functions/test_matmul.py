"""matmul inside `emulated(...)`: stored kernels, databases, staging and refusals; tests/public_cases draws calls."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from tests.doubles.stored import stock_classes

pytestmark = pytest.mark.usefixtures("no_databases")
ONE_CLASS = {"sm_87": {("float16", "float16", "ieee"): [("knn", True, "contraction_mma", True)]}}


def one_call():
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in [(80, 96), (96, 72)])
    return a, b, rng.standard_normal(72).astype(np.float16)


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


def test_calls_without_a_kernel_raise():
    a = np.zeros((3, 3), np.int64)
    with gensor_kernels.emulated("sm_87"):
        with pytest.raises(gensor_kernels.UnsupportedError, match="int64"):
            gensor_kernels.matmul(a, a)
        with pytest.raises(gensor_kernels.UnsupportedError, match="7 epilogue operations"):
            gensor_kernels.matmul(a * 1.0, a * 1.0, epilogue=["relu"] * 7)
        out = np.zeros((3, 3), ">f8")
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
