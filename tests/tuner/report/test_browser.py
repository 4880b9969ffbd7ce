"""The report in a real browser: it draws, requests nothing, can be used by keyboard, and runs only its own script."""

import pytest

from gensor_database import Store
from gensor_tuner.report.page import write
from tests.campaign_size import sample
from tests.doubles import browser
from tests.doubles.reported import SHIPPED, hostile, timed

pytestmark = pytest.mark.skipif(browser.find() is None, reason=browser.MISSING)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The report of the shipped database, of one with timings, and of one that means harm."""
    folder = tmp_path_factory.mktemp("pages")
    databases = {"shipped": SHIPPED, "timed": timed(folder / "t.db", 4), "hostile": hostile(folder / "h.db")}
    for name, path in databases.items():
        with Store.open(path, readonly=True) as store:
            write(store, None, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in databases}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    made = browser.Browser(browser.find(), tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


WINDOWS = [
    (name, width, dark) for name in ("shipped", "timed") for width in (1920, 1280, 390) for dark in (False, True)
]


@pytest.mark.parametrize(("name", "width", "dark"), sample(WINDOWS, 2))
def test_it_draws_everything_inside_the_window(chromium, pages, name, width, dark):
    chromium.look(width, 900, dark)
    chromium.open(pages[name])
    assert not chromium.problems and chromium.requests == [pages[name].as_uri()]
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    outside = """[...document.querySelectorAll('svg.chart')].flatMap(chart => {
        const all = chart.getBoundingClientRect();
        return [...chart.querySelectorAll('text, circle')].filter(each => {
            const box = each.getBoundingClientRect();
            return box.height && (box.left < all.left - 1 || box.right > all.right + 1 || box.bottom > all.bottom + 1);
        }).map(each => each.textContent || each.outerHTML);
    })"""
    assert chromium.evaluate(outside) == []
    heights = "[...document.querySelectorAll('svg.chart text')].map(e => e.getBoundingClientRect().height)"
    assert min(height for height in chromium.evaluate(heights) if height) >= 9
    columns = "[...document.querySelectorAll('.scroll')].map(frame => frame.scrollWidth - frame.clientWidth)"
    assert width < 1280 or max(chromium.evaluate(columns)) == 0


def test_each_series_has_one_colour_one_name_and_a_readable_limit(chromium, pages):
    chromium.look(1280, 900)
    chromium.open(pages["shipped"])
    series = """[...document.querySelector('.legend').children].map(
        item => [item.textContent, getComputedStyle(item.firstChild).backgroundColor])"""
    names, colours = zip(*chromium.evaluate(series), strict=True)
    kinds = [kind for name in names for kind in name.split(", ")]
    assert len(set(kinds)) == len(kinds) and "float32" in kinds and "float32 (long sums)" in kinds
    assert len(set(colours)) == len(colours)
    limits = """[...document.querySelectorAll('polyline.roof')].map(
        (roof, place) => [getComputedStyle(roof).stroke,
                          getComputedStyle(document.querySelectorAll('.roofname[x]')[place]).fill])"""
    assert chromium.evaluate(limits) == [[colour, colour] for colour in colours]
    struck = """(() => {
        const chart = document.querySelector('svg.chart');
        const edge = Math.max(...[...chart.querySelectorAll('.grid, .dot')].map(e => e.getBoundingClientRect().right));
        const boxes = [...chart.querySelectorAll('.roofname[x]')].map(e => e.getBoundingClientRect());
        const beside = boxes.every(box => box.left > edge);
        return beside && boxes.slice(1).every((box, i) => box.top >= boxes[i].bottom - 4);
    })()"""
    assert chromium.evaluate(struck)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_the_paper(chromium, pages, dark):
    """Contrast of WCAG 2.1 AA: 4.5 for text, 3 for marks."""
    chromium.look(dark=dark)
    chromium.open(pages["timed"])
    contrast = """(() => {
        const light = (css) => {
            const rgb = css.match(/[0-9.]+/g).slice(0, 3).map(Number)
                .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
        };
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const paper = light(getComputedStyle(document.body).backgroundColor), found = [];
        for (const each of document.querySelectorAll('p, h1, h2, h3, dt, dd, td, th button, li, figcaption, summary'))
            found.push([ratio(light(getComputedStyle(each).color), paper) / 4.5, each.textContent]);
        for (const each of document.querySelectorAll('.chart text:not(.inbar):not(.cellnumber)'))
            found.push([ratio(light(getComputedStyle(each).fill), paper) / 4.5, each.textContent]);
        for (const each of document.querySelectorAll('.chart .inbar, .chart .cellnumber'))
            found.push([ratio(light(getComputedStyle(each).fill),
                light(getComputedStyle(each.previousSibling).fill)) / 3, each.textContent]);
        for (const each of document.querySelectorAll('.dot'))
            found.push([ratio(light(getComputedStyle(each).fill), paper) / 3, each.outerHTML]);
        return found.filter(([share]) => share < 1).slice(0, 9);
    })()"""
    assert chromium.evaluate(contrast) == []


def test_the_keyboard_visits_marks_and_a_screen_reader_hears_them(chromium, pages):
    chromium.look()
    chromium.open(pages["shipped"])
    chromium.evaluate("document.querySelector('svg.chart').focus()")
    chromium.press("ArrowRight")
    first = chromium.evaluate("document.getElementById('said').textContent")
    chromium.press("End")
    last = chromium.evaluate("document.getElementById('said').textContent")
    assert first != last and "predicted" in first and "limited by" in last
    assert chromium.evaluate("getComputedStyle(document.getElementById('tip')).display") == "block"
    chromium.press("Escape")
    assert chromium.evaluate("getComputedStyle(document.getElementById('tip')).display") == "none"
    tree = chromium.send("Accessibility.getFullAXTree")["nodes"]
    names = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if "role" in node]
    assert any(role == "heading" and name == "Roofline" for role, name in names)
    assert any("Roofline of orin-nano-8gb" in name for _, name in names)
    assert any(role == "table" and name.startswith("Workloads") for role, name in names)


def test_tables_sort_and_filter_by_keyboard(chromium, pages):
    chromium.look()
    chromium.open(pages["shipped"])
    table = "document.querySelectorAll('.sortable')[2]"
    numbers = f"[...{table}.querySelectorAll('tbody tr:not([hidden]) td:nth-child(5)')].map(c => Number(c.dataset.v))"
    heading = f"{table}.querySelector('th:nth-child(5) button')"
    every = chromium.evaluate(f"{table}.querySelectorAll('tbody tr').length")
    for expected in ("ascending", "descending"):
        chromium.evaluate(f"{heading}.focus()")
        chromium.press("Enter")
        assert chromium.evaluate(f"{heading}.parentNode.getAttribute('aria-sort')") == expected
        found = chromium.evaluate(numbers)
        assert len(found) == every and found == sorted(found, reverse=expected == "descending")
    chromium.evaluate(f"{table}.querySelector('input').focus()")
    chromium.send("Input.insertText", text="int8 launch")
    rows = chromium.evaluate(f"[...{table}.querySelectorAll('tbody tr:not([hidden])')].map(r => r.textContent)")
    assert 0 < len(rows) < every / 2 and all("int8" in row and "launch" in row for row in rows)
    assert chromium.evaluate(f"{table}.querySelector('.count').textContent") == f"{len(rows)} of {every} rows"


def test_a_hostile_database_runs_nothing(chromium, pages):
    chromium.look()
    chromium.open(pages["hostile"])
    chromium.evaluate("document.querySelectorAll('a, button, summary').forEach(each => each.click())")
    chromium.evaluate("document.querySelectorAll('[data-tip]').forEach(e => e.dispatchEvent(new Event('pointerover')))")
    assert chromium.evaluate("window.harmed === undefined")
    assert not chromium.problems and chromium.requests == [pages["hostile"].as_uri()]
    assert chromium.evaluate("document.scripts.length") == 1


def test_the_page_prints_its_whole_tables(chromium, pages):
    chromium.look(dark=True, medium="print")
    chromium.open(pages["shipped"])
    assert chromium.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.evaluate("getComputedStyle(document.querySelector('.filter')).display") == "none"
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 2).length"
    assert chromium.evaluate(cut) == 0
    rows = chromium.evaluate("document.querySelectorAll('tbody tr').length")
    assert 5 <= chromium.pages() <= 4 + rows / 30


def test_without_a_script_the_page_is_whole(chromium, pages):
    chromium.look()
    chromium.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(pages["shipped"])
        document = chromium.send("DOM.getDocument")["root"]["nodeId"]
        found = chromium.send("DOM.querySelectorAll", nodeId=document, selector="tbody tr")["nodeIds"]
        assert len(found) > 100
    finally:
        chromium.send("Emulation.setScriptExecutionDisabled", value=False)
