"""The documentation site in a browser, from a folder and without a network: widths, scripts, search.

Needs mkdocs (the extra `docs`) and a Chromium on the PATH: .github/workflows/docs.yml.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.doubles import browser as chromium

from .test_packaging import ROOT

WIDE = "[...document.querySelectorAll('.md-content, .md-header')].some(e => e.scrollWidth > innerWidth)"
WIDER = f"document.documentElement.scrollWidth > innerWidth || {WIDE}"
#: Code that must be scrolled although no line has more than 100 characters.
CLIPPED = """[...document.querySelectorAll('.highlight code')].some(
    e => e.scrollWidth > e.clientWidth && e.textContent.split('\\n').every(line => line.length <= 100))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("material", reason="no mkdocs-material: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = chromium.Browser(chromium.find() or pytest.skip(chromium.MISSING), tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


def test_every_page_fits_fetches_nothing_and_links_to_files(site, browser):
    pages = sorted(set(site.rglob("*.html")) - {site / "404.html"})  # which only a server shows
    assert len(pages) > 45
    found = {}
    for page in pages:
        targets = re.findall(r'<a [^>]*href="([^"#:]+)[#"]', page.read_text(encoding="utf-8"))
        complaints = [target for target in targets if not (page.parent / unquote(target)).exists()]
        for width in (390, 1280):
            browser.look(width, 900)
            browser.open(page)
            complaints += browser.problems
            complaints += [url for url in browser.requests if not url.startswith(("file:", "data:", "about:"))]
            complaints += ["too wide"] if browser.evaluate(WIDER) else []
            complaints += ["clipped code"] if width == 1280 and browser.evaluate(CLIPPED) else []
        if complaints:
            found[str(page.relative_to(site))] = complaints
    assert not found


def test_search_works_from_a_folder(site, browser):
    browser.look(1280, 900)
    browser.open(site / "how-to" / "tune.html")
    browser.evaluate("document.querySelector('.md-search__input').focus()")
    browser.send("Input.insertText", text="GENSOR_DETERMINISTIC")
    browser.press("End")  # the page listens to keys
    deadline, links = time.monotonic() + 30, []
    while not links and time.monotonic() < deadline:
        time.sleep(0.1)
        links = browser.evaluate("[...document.querySelectorAll('.md-search-result__link')].map(e => e.href)")
    assert any("/reference/settings.html" in link for link in links)
    assert not browser.problems
