"""The documentation site: its pages, the links that lead out of them, and its version of docstrings."""

import importlib.util
import re

import pytest

import gensor_kernels

from .test_packaging import PROJECT, ROOT

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
REPOSITORY = PROJECT["project"]["urls"]["Homepage"]


def module(name: str):
    """A module of docs/, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


hooks = module("hooks")


def test_pages_and_addresses_are_those_of_the_project():
    listed = re.findall(r"([\w./-]+\.(?:md|py))$", CONFIG[CONFIG.index("\nnav:") :], re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    pages |= {f"gallery/{notebook.name}" for notebook in (ROOT / "docs" / "gallery").glob("*.py")}
    assert len(listed) == len(set(listed)) and set(listed) == pages | set(hooks.MADE) | {hooks.HELP}
    assert f"\n  repository: {REPOSITORY} " in CONFIG and f"link: {REPOSITORY}\n" in CONFIG
    owner, name = REPOSITORY.split("/")[-2:]
    assert f"\nsite_url: https://{owner}.github.io/{name}/\n" in CONFIG  # as GitHub's Pages name it


def test_the_api_page_has_every_public_name():
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: gensor_kernels\.(\w+)$", page, re.MULTILINE)
    assert len(named) == len(set(named))
    assert set(named) == {name for name in gensor_kernels.__all__ if not name.startswith("_")}


def test_links_are_those_of_the_site():
    pages = {"README.md": "index.md", "docs/start/cupy.md": "start/cupy.md", "docs/trust.md": "trust.md"}
    pages["docs/report.png"] = "report.png"
    raw = REPOSITORY.replace("github.com", "raw.githubusercontent.com")
    readme = f"[a]({REPOSITORY}/blob/main/docs/trust.md#files) ![b]({raw}/main/docs/report.png) [c](https://cupy.dev)"
    wanted = "[a](trust.md#files) ![b](report.png) [c](https://cupy.dev)"
    assert hooks.relink(readme, "index.md", pages, REPOSITORY) == wanted
    page = "[a](../trust.md) [b](../../README.md) [c](../../tuner/) [d](../../Makefile)\n```sh\n[e](../trust.md)\n```\n"
    assert hooks.relink(page, "start/cupy.md", pages, REPOSITORY) == (
        f"[a](../trust.md) [b](../index.md) [c]({REPOSITORY}/tree/main/tuner) [d]({REPOSITORY}/blob/main/Makefile)\n"
        "```sh\n[e](../trust.md)\n```\n"
    )
    notebook = '<a href="../potential.md#power">x</a> <a href="https://x.org/y.md">z</a>'
    assert hooks.SOURCE.sub(r"\1.html\2", notebook) == notebook.replace("potential.md", "potential.html")


def test_a_fetch_from_another_host_is_found():
    tags = '<script src="https://unpkg.com/x"></script><link rel="stylesheet" href="https://fonts.example/css">'
    assert hooks.FETCHED.findall(tags) == ["https://unpkg.com/x", "https://fonts.example/css"]
    assert not hooks.FETCHED.findall('<a href="https://cupy.dev">CuPy</a> <script src="assets/x.js"></script>')


def test_the_help_of_every_command_is_a_page():
    pytest.importorskip("typer")
    text = hooks.command_line()
    assert text.startswith("# Help of every command\n\nFor anyone who ")
    assert {"show", "merge", "doctor"} <= set(re.findall(r"^## `gensor-tune ([\w-]+)`$", text, re.MULTILINE))


def test_docstrings_become_markdown():
    pytest.importorskip("griffe")
    markdown = module("griffe_numpydoc").markdown
    text = "Sum [1]_.\n\nParameters\n----------\naxis : {0, 1}, optional\n    Which.\n\n"
    text += "Notes\n-----\nTypes\n    Many.\n\nReferences\n----------\n.. [1] A. Author.\n"
    wanted = "Sum \\[1\\].\n\nParameters\n----------\naxis : 0 or 1, optional\n    Which.\n\n"
    wanted += "Notes\n-----\n**Types.** Many.\n\nReferences\n----------\n\n\\[1\\] A. Author.\n"
    assert markdown(text) == wanted


def test_words_of_the_glossary_are_explained_where_they_stand():
    made = hooks.abbreviations(hooks.read(hooks.GLOSSARY))
    found = dict(re.findall(r"^\*\[([^\]]+)\]: (.+)$", made, re.MULTILINE))
    words = {"Workload", "Program", "Programs", "arch", "portfolio", "residual", "slice", "this part", "source text"}
    assert words <= set(found) and not {"part", "source", "term", "Kernel"} & set(found)
    assert found["this part"].startswith("a GPU of one capability") and "`" not in made
    assert set(hooks.COMMON) - {"term"} <= set(re.findall(r"[\w']+", hooks.read(hooks.GLOSSARY)))
