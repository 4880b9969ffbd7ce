"""`explain`: sentences, details, and the picture in notebooks; the counters."""

import logging
import re
import warnings
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import gensor_kernels
from gensor_database.text import duration, span
from gensor_kernels import Explanation, explain, matmul
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.machine.expected import expected_us
from tests.doubles.kernels import aligned, kernels, put, raced, runtime_of, workload
from tests.threads import in_threads

pytestmark = pytest.mark.usefixtures("user_database")
A = np.ones((4, 4), np.float32)


def test_explain_takes_the_calls_own_arguments(no_databases):
    out = np.empty((4, 4), np.float32)
    with gensor_kernels.emulated("sm_87"):
        why = explain(matmul, A, A, out, alpha=2, activation="relu", precision="ieee")
        assert why.tier == 3 and '"epilogue":["scale","relu"]' in why.workload
        assert explain(matmul, A, A, out=out).workload == explain(matmul, A, A).workload
        assert explain(matmul, A[:0], A).tier == 0


def test_words_and_details(no_databases):
    """The server, its time compared with the bound and the library's, and how to make it faster."""
    a = np.ones((1024, 1000), np.float16).T
    with gensor_kernels.emulated("sm_87"):
        why = explain(matmul, a, a.T, bias=a[0, :1])
        refused = explain(matmul, a.astype("int64"), a.T.astype("int64"))
        staged = explain(matmul, a, a.T.astype("float32"))
        nothing = explain(matmul, a[:0], a.T)
        small = explain(matmul, a[:2, :2], a[:2, :2])
    served, times, better = str(why).splitlines()
    assert served.startswith(
        f"Kernel {why.kernel[:12]} of {why.family} serves this call on orin-nano-8gb (sm_87), tier 3: "
    )
    assert why.expected_us == expected_us(why.predicted_us, why.family)
    assert f"(predicted; {span(*why.expected_us)} expected by times on h100-sxm), " in times
    assert f"expected  {span(*why.expected_us)}" in why.details
    assert re.fullmatch(r"It takes .* µs \(predicted; .*\), .* its bound.*; CuPy takes .* µs \(predicted\)\.", times)
    assert better.startswith("To make it faster: tune for exactly these sizes: ") and "--arch orin-nano-8gb" in better
    assert duration(why.predicted_us) in times and duration(why.library_us) in times
    assert why.bound_us <= why.predicted_us and why.bound_by in ("arithmetic", "memory", "launch")
    assert str(refused).startswith("No kernel serves this call on orin-nano-8gb (sm_87), tier 4: products of int64")
    assert len(str(refused).splitlines()) == 1 and refused.better is None
    assert "Besides, operands are converted." in str(staged) and "no conversion" in staged.better
    assert str(nothing) == "Nothing is launched on orin-nano-8gb (sm_87): the result has no elements."
    assert small.bound_by == "launch" and small.better == "make fewer, larger calls"
    assert "program" not in str(why) and f"block_m {why.program['block_m']}" in why.details
    assert "tier  3 (chosen from stored kernels)" in why.details and "bound  " in why.details


def test_words_of_measured_calls():
    """Tier 4 with the time of our kernel, in seconds."""
    found = Explanation(
        *(4, "measured on orin-nano-8gb: the library takes 1.2 s, our best kernel 1.5 s", "orin-nano-8gb (sm_87)"),
        **{"measured_us": 1.5e6, "vendor_us": 1.2e6, "library_us": 2e6, "bound_us": 1e6, "bound_by": "memory"},
    )
    assert str(found).splitlines() == [
        f"CuPy serves this call on orin-nano-8gb (sm_87), tier 4: {found.reason}.",
        "Our best kernel would take 1.5 s (measured), 1.5 times its bound of 1 s (the part's memory); "
        "CuPy takes 1.2 s (measured).",
    ]
    assert found.expected_us is None
    assert str(Explanation(4, "GENSOR_DISABLE is set", "t4 (sm_75)")).splitlines() == [
        "CuPy serves this call on t4 (sm_75), tier 4: GENSOR_DISABLE is set."
    ]


def test_notebooks_draw_it_escaped_and_in_the_pages_colours(no_databases):
    a = np.ones((1024, 1000), np.float16).T
    hostile = "<script>alert('x')</script> & \"more\""
    with gensor_kernels.emulated("sm_87"):
        why = explain(matmul, a, a.T)
    for each in (why, replace(why, reason=hostile, views=hostile), Explanation(0, hostile, hostile)):
        drawn = list(ElementTree.fromstring(each._repr_html_()).iter())
        assert {element.tag for element in drawn} <= {*"div p span table tr th td details summary".split()}
        assert not [element for element in drawn if element.attrib.keys() - {"style"}]
        text = " ".join(filter(None, (element.text for element in drawn)))
        assert each.reason in text and all(line in text for line in str(each).splitlines())
        assert "details" in text and "http" not in each._repr_html_()
        styles = [element.get("style", "") for element in drawn]
        for style in styles:
            colours = re.findall(r"(?<![-\w])color:([^;]+)", style)
            assert set(colours) <= {"inherit"} and not re.search(r"background:(white|#fff|black|#000)", style)
        bars = [style for style in styles if "background:#" in style]
        assert each.tier == 0 or (len(bars) == 3 and any("width:20.0em" in bar for bar in bars))


@pytest.mark.parametrize("stored, warned", [("int32", True), ("int8", False)])
def test_int8_that_wraps_around_is_named(monkeypatch, stored, warned):
    """The note of `explain`; a warning, once, where a kernel was tuned for the exact sums."""
    wanted = workload(64, 64, 64, dtype="int8", out=stored)
    found = kernels(wanted)
    put(monkeypatch, runtime_of(stored=found, records={wanted.key(): next(iter(found))}))
    a = aligned((64, 64), np.int8)
    assert 'dtype="int32"' in str(explain(matmul, a, a))
    assert explain(matmul, a, a, dtype="int32").note is None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        matmul(a, a)
        matmul(a, a, out=aligned((64, 64), np.int8))
    assert [each.category for each in said] == warned * [RuntimeWarning]


# ---- counters


@pytest.fixture
def counted():
    """A function that returns the increments since the start of the test."""
    before = gensor_kernels.counters()

    def moved():
        now = gensor_kernels.counters()
        hits = {tier: n - (before["hits"] or {}).get(tier, 0) for tier, n in (now["hits"] or {}).items()}
        return {name: now[name] - before[name] for name in ("misses", "races", "tunes", "fallbacks")} | {"hits": hits}

    return moved


def test_misses_races_and_fallbacks(counted):
    a, made = aligned((64, 64)), raced()
    for _ in range(5):
        made.call(a, a, None, (), None, None)
    # The first call was the library's, before the second one was raced.
    assert counted() == {"misses": 1, "races": 1, "tunes": 0, "fallbacks": 1, "hits": counted()["hits"]}
    slower = raced(ours=50.0)
    for _ in range(5):
        slower.contract("ij,jk->ik", a, a)
    assert counted()["misses"] == 2 and counted()["fallbacks"] == 6


def test_hits_are_counted_where_they_are_enabled(counted, monkeypatch):
    monkeypatch.setenv("GENSOR_COUNT_HITS", "1")
    a, made = aligned((64, 64)), raced()
    for _ in range(5):
        made.call(a, a, None, (), None, None)
    assert counted()["hits"][1] == 3  # the second found the Plan of the library's, the first none
    assert gensor_kernels.counters()["kinds"][1] >= 1


def test_threads_lose_no_counts():
    counter = counters.Tally()
    in_threads(lambda _: [counter.add() for _ in range(2000)], range(8))
    assert counter.value() == 16000


def test_the_log_line(caplog):
    counters.misses.add()
    with caplog.at_level(logging.INFO, logger="gensor_kernels"):
        counters._log()
    assert "counters: {'hits': " in caplog.text and "'fallbacks': " in caplog.text
