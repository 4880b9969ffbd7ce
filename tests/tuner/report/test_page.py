"""gensor-tune report: the contents of the page, and no markup from a database."""

import re
from dataclasses import fields, replace
from html.parser import HTMLParser

import numpy as np
import pytest

from gensor_database import PRETUNED, Record, Store, duration
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.report import tables
from gensor_tuner.report.contents import LAUNCH, RESOURCES, Part, parts, shares, terms_of
from gensor_tuner.report.walked import followed
from gensor_tuner.store.uses import Use
from tests.doubles.reported import HOSTILE, SHIPPED, hostile, timed
from tests.doubles.store_rows import add_rows, rows

VOID = {"meta", "input", "br", "wbr"}
ARCH = lookup("orin-nano-8gb")


class Reader(HTMLParser):
    """Elements with their attributes, and proof that every one of them is closed."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def count(self, name, css=None):
        return sum(tag == name and (css is None or css in (a.get("class") or "").split()) for tag, a in self.found)


@pytest.fixture(scope="module")
def shipped() -> Part:
    with Store.open(SHIPPED, readonly=True, immutable=True) as store:
        (part,) = parts(store, None)
    return part


def test_the_shipped_database(gensor_tune, tmp_path, shipped):
    out = tmp_path / "report.html"
    code, said, _ = gensor_tune("report", "--db", PRETUNED / "sm_87.db", "--arch", "sm_87", "-o", out)
    text = out.read_text(encoding="utf-8")
    assert code == 0 and f"{len(shipped.lines)} workloads of orin-nano-8gb" in said
    assert len(text) < 1_000_000
    page, dots = Reader(text), len(shipped.served)
    assert page.count("circle", "hollow") == dots == len(shipped.lines)
    assert page.count("line", "grid") >= 12 and "&lt;" not in text
    assert page.count("tr") >= dots and page.count("svg", "chart") == 3 and page.count("svg", "smallbar") > 20
    assert "all times here are predictions" in text and "has been timed: everything" in text
    assert not re.search(r"(src|href)=\"?(https?:)?//|@import|url\(", text)


def test_workloads_are_ordered_by_the_time_of_their_calls(shipped):
    first, second = shipped.lines[0], max(shipped.lines, key=lambda line: line.time_us or 0.0)
    often = replace(first, uses=(Use("net", 2, "often", "net", 10**9, "matmul", "1x1x1"),))
    head, *rows = re.findall("<tr>(.*?)</tr>", str(tables.records(replace(shipped, lines=(second, often)))))
    titles = [re.sub("<.*?>", "", title) for title in re.findall("<th.*?</th>", head)]
    cells = [dict(zip(titles, re.findall("<td[^>]*>(.*?)</td>", row), strict=True)) for row in rows]
    assert [each["name"] for each in cells] == ["often", ""] and cells[0]["share, %"] == "100.0"
    both = often.both
    assert cells[0]["CuPy"] == f"~{duration(both.theirs_us)}" and cells[0]["serves"] == both.serves == "race"
    assert float(cells[0]["gain"]) == pytest.approx(both.theirs_us / often.predicted_us, abs=0.01)
    (total,) = replace(shipped, lines=(often,)).totals
    assert f"{10**9} calls take" in total and "CuPy's calls" in total


def test_timings_are_drawn_and_a_page_that_cannot_be_written_is_a_sentence(gensor_tune, tmp_path, shipped):
    out = tmp_path / "report.html"
    assert gensor_tune("report", "--db", timed(tmp_path / "timed.db", every=2), "-o", out)[0] == 0
    page, text = Reader(out.read_text(encoding="utf-8")), out.read_text(encoding="utf-8")
    every, timings = len(shipped.lines), len(shipped.lines[::2])
    assert f"{timings} of {every} workloads were timed on a GPU" in text
    assert "Measured over predicted: median 1." in text and "the time of cupy.matmul over ours" in text
    assert page.count("circle", "hollow") == every - timings
    assert page.count("rect", "cell") >= 20 and page.count("svg", "chart") == 5
    add_rows(tmp_path / "one.db", *rows(1))
    code, _, said = gensor_tune("report", "--db", tmp_path / "one.db", "-o", tmp_path / "no" / "report.html")
    assert code == 2 and "cannot be written: No such file" in said


def test_texts_of_a_database_stay_texts(gensor_tune, tmp_path):
    out = tmp_path / "report.html"
    assert gensor_tune("report", "--db", hostile(tmp_path / "hostile.db"), "-o", out)[0] == 0
    page = Reader(out.read_text(encoding="utf-8"))
    assert page.count("script") == page.count("style") == page.count("title", None) - page.count("circle") == 1
    assert not page.count("img") + page.count("iframe")
    assert not [name for _, attributes in page.found for name in attributes if name.startswith("on")]
    links = {attributes.get("href") for tag, attributes in page.found if tag == "a"}
    assert all(link.startswith("#") for link in links)
    shown = out.read_text(encoding="utf-8")
    assert "&lt;script&gt;window.harmed=1&lt;/script&gt;" in shown and "\\x00" in shown and "\x00" not in shown
    assert not [text for text in HOSTILE[:4] if text in shown]


def recorded_terms(record):
    with Store.open(SHIPPED, readonly=True, immutable=True) as store:
        kernel = store.kernel(record.kernel_digest).kernel
        return terms_of(Workload.from_json(record.key), kernel, store.binary(kernel), ARCH)


def only(terms, *names):
    nothing = {each.name: np.zeros(1, np.float32) for each in fields(terms) if each.name != "in_flight"}
    kept = ("blocks", "residents", "warps", "iterations", "registers", "shared_bytes", "placed", *names)
    return replace(terms, **nothing | {name: getattr(terms, name) for name in kept})


def test_shares_sum_to_one_and_name_what_bounds(shipped):
    for line in shipped.lines:
        assert set(line.split) == {*RESOURCES, LAUNCH} and min(line.split.values()) >= 0
        assert sum(line.split.values()) == pytest.approx(1)
        from_dram = line.moved / (ARCH.dram_gb_s * 1e3) / line.record.predicted_us
        peak = ARCH.fastest(operator(line.workload.operator).peak_dtype(line.workload), line.workload.math)
        multiplying = line.flops / peak * 1e6 / line.record.predicted_us
        ceilings = (from_dram, "DRAM"), (multiplying, "math"), (ARCH.launch_us / line.record.predicted_us, LAUNCH)
        # A kernel near one ceiling may be as near another: what is named is one of them. Above 1 it is none: reductions
        # do with fewer operations than their bound counts.
        near = [line.split[name] for share, name in ceilings if 0.8 <= share <= 1]
        if line.limit == "latency":  # whose ceiling follows from the machine code
            waits = only(recorded_terms(line.record), *RESOURCES["latency"], "l2_bytes")
            waiting = float(roofline.seconds(waits, ARCH)[0]) * 1e6 / line.record.predicted_us
            near += [line.split["latency"]] if waiting >= max(share for share, _ in ceilings) else []
        assert not near or max(near) > max(line.split.values()) - 0.04, (line.name, ceilings, line.split)
    assert {"DRAM", "math", LAUNCH} <= {line.limit for line in shipped.lines}


def test_a_share_is_what_a_resource_adds(shipped):
    """The whole time but the launch for a kernel's only resource, equal shares for equal resources."""
    terms = recorded_terms(max(shipped.lines, key=lambda line: line.flops).record)
    still = replace(ARCH, l2_latency=0.0, dram_latency=0.0)
    math = replace(only(terms, "math"), l2_bytes=np.float32([1e-20]))
    found = shares(only(terms, "math"), still)
    whole = float(roofline.seconds(math, still)[0])
    launch = float(roofline.seconds(replace(math, math=np.zeros(1, np.float32)), still)[0])
    assert found["math"] == pytest.approx(1 - launch / whole, abs=1e-6)
    assert found["math"] + found[LAUNCH] == pytest.approx(1, abs=1e-6)


def test_a_walk_is_followed_to_its_record(shipped):
    lines = (each for each in shipped.lines if each.workload.operator == "matmul")
    line = next(line for line in lines if '"legs":[{"path"' in line.record.walk)
    steps = followed(line.record.walk, line.workload, ARCH)
    assert steps[0].action == "start" and steps[0].benefit == 0 and "block_" in steps[0].change
    gained = sum(step.benefit for step in steps)
    assert np.log(steps[0].predicted_us / steps[-1].predicted_us) == pytest.approx(gained)
    assert steps[-1].predicted_us == pytest.approx(line.record.predicted_us, rel=0.1)


def test_the_newest_record_of_a_workload_counts(tmp_path):
    with Store.open(tmp_path / "kernels.db") as store:
        old = next(row for row in rows(1) if isinstance(row, Record))
        store.add(*rows(1), replace(old, predicted_us=99.0, created=old.created + 1))
        (part,) = parts(store, None)
    assert [line.record.predicted_us for line in part.lines] == [99.0]
    assert part.lines[0].measured_us == 21.0 and part.lines[0].vendor_us == 26.0 and part.lines[0].vendor == "cublas"
