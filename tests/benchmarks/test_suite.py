"""The step that runs CuPy's own tests inside `accelerate`, on tests of our own in the same folders."""

from types import SimpleNamespace

import pytest

from benchmarks.gpu import suite

pytest.importorskip("cupy")

#: One test passes, one always fails, one fails only where cupy.matmul is ours.
TESTS = """
import cupy


def test_right():
    assert cupy.matmul is not None


def test_never_right():
    assert False


def test_ours():
    assert type(cupy.matmul).__module__.partition(".")[0] == "cupy"
"""


@pytest.fixture
def checkout(tmp_path):
    path = tmp_path / "tests" / "cupy_tests" / suite.FILES[0]
    path.parent.mkdir(parents=True)
    path.write_text(TESTS)
    return tmp_path


@pytest.mark.nightly
def test_failures_of_accelerate_alone_are_reported(checkout):
    found = suite.compare(SimpleNamespace(cupy_tests=checkout, emulate=False), suite.FILES[0])
    assert found["outcome"] == "wrong" and found["tests"] == 3 and found["passed"] == 1 and found["failed"] == 2
    (worse,) = found["failed only with accelerate"]
    assert worse.endswith("::test_ours") and "fallbacks" in found["counters"]


def test_a_rehearsal_collects(checkout):
    found = suite.compare(SimpleNamespace(cupy_tests=checkout, emulate=True), suite.FILES[0])
    assert found == {"collected": 3, "status": 0}


def test_without_a_checkout_it_is_skipped_and_lost_tests_are_reported(tmp_path):
    for place in (None, tmp_path):
        found = suite.compare(SimpleNamespace(cupy_tests=place, emulate=False), suite.FILES[0])
        assert found["outcome"] == "skipped" and "--cupy-tests" in found["reason"]
    right = {"a": "passed", "b": "passed"}
    assert "outcome" not in suite.judge(right, right, {})
    assert suite.judge(right, {"a": "passed"}, {})["error"] == "b"
    assert suite.judge({}, {}, {})["error"] == "no test passed"
