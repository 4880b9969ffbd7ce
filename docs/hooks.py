"""mkdocs: pages made from files outside docs/, the help of the command line, and links that lead out of docs/."""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
#: Pages of the site that are files of the repository, by their address.
MADE = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "figures/benchmarks.md": "benchmarks/README.md",
    "figures/results.md": "benchmarks/results/README.md",
}
FAMILIES = ROOT / "gensor_kernels" / "families"
#: The pages of kernel families are in the families' folders: contraction/mma/README.md is contraction_mma.md.
MADE |= {
    f"families/{'_'.join(page.relative_to(FAMILIES).parent.parts) or 'README'}.md": page.relative_to(ROOT).as_posix()
    for page in sorted(FAMILIES.rglob("README.md"))
}
HELP = "reference/help.md"
GLOSSARY = "docs/reference/glossary.md"
#: Texts in which terms that are also everyday words, or words at the start of a sentence, have the glossary's meaning.
COMMON: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("term", "Action", "Binary", "Graph", "Kernel", "Record", "Space", "Walk"), ()),
    "class": ("a class", "per class", "class's", "of their class"),
    "part": ("this part", "that part", "one part", "other parts", "default part", "a part's", "part's name"),
    "source": ("CUDA source", "source text", "source digest", "Source digest", "kernel sources"),
}
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
FETCHED = re.compile(r"""(?:\ssrc=|<link[^>]+stylesheet[^>]*href=)["']?(https?://[^"'>\s]+)""")
#: A notebook's link to the source of a page, which mkdocs leaves as it is.
SOURCE = re.compile(r"""(?<=href=")((?!\w+:)[^"#]+)\.md((?:#[^"]*)?")""")
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are no files of docs/."""
    from mkdocs.structure.files import File

    for address, source in MADE.items():
        files.append(File.generated(config, address, content=front_matter(address) + read(source)))
    files.append(File.generated(config, HELP, content=command_line()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links to pages, or to the repository where there is no page; explain
    the words of the glossary."""
    address = page.file.src_uri
    pages = {MADE.get(file.src_uri, f"docs/{file.src_uri}"): file.src_uri for file in files}
    return relink(markdown, address, pages, config.extra["repository"]) + abbreviations(read(GLOSSARY))


def relink(markdown: str, address: str, pages: dict[str, str], repository: str) -> str:
    """Return a page with its links as the site has them.

    Parameters
    ----------
    markdown : str
        The page as the repository has it.
    address : str
        The page's address in the site.
    pages : dict
        Addresses of the site's pages and images, by their paths in the repository.
    repository : str
        Address of the repository.
    """
    folder = posixpath.dirname(MADE.get(address, f"docs/{address}"))
    absolute = (f"{repository}/blob/main/", repository.replace("github.com", "raw.githubusercontent.com") + "/main/")

    def replace_link(found: re.Match[str]) -> str:
        target, anchor = found[2], found[3] or ""
        own = next((target.removeprefix(start) for start in absolute if target.startswith(start)), None)
        if own is None and "://" in target:
            return found[0]
        path = own or posixpath.normpath(posixpath.join(folder, target))
        if path in pages:
            target = posixpath.relpath(pages[path], posixpath.dirname(address) or ".")
        else:
            target = f"{repository}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}"
        return found[1] + target + anchor + found[4]

    parts = FENCED.split(markdown)
    return "".join(part if number % 2 else LINK.sub(replace_link, part) for number, part in enumerate(parts))


def abbreviations(glossary: str) -> str:
    """Return the terms of the glossary as abbreviations, whose meanings are shown where the pointer rests on them."""
    found = re.findall(r"^\| ([\w, ]+) \| (.+?) \| [^|]*\|$", glossary, re.MULTILINE)
    spelled = [(word, meaning) for terms, meaning in found for term in terms.split(", ") for word in spellings(term)]
    return "\n\n" + "\n".join(f"*[{word}]: {meaning.replace('`', '')}" for word, meaning in spelled)


def spellings(term: str) -> tuple[str, ...]:
    """Return the texts in which a term is recognised: words of other meanings only together with their neighbours."""
    return COMMON.get(term, (term, f"{term}s"))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Point the links of notebooks to pages; refuse a page that would fetch anything from another host."""
    from mkdocs.exceptions import PluginError

    output = SOURCE.sub(r"\1.html\2", output)
    if fetched := FETCHED.findall(output):
        raise PluginError(f"{page.file.src_uri} fetches {', '.join(sorted(set(fetched)))}")
    return output


def read(path: str) -> str:
    """Return a file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def front_matter(address: str) -> str:
    """Return the front matter of a made page: searches list the changelog below all other pages."""
    return "---\nsearch:\n  boost: 0.1\n---\n\n" if address == "changelog.md" else ""


def command_line() -> str:
    """Return the help of every command, by typer's own utility."""
    command = [sys.executable, "-m", "typer", "gensor_tuner.cli.app", "utils", "docs", "--name", "gensor-tune"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    opening = "\n\nFor anyone who wants the help of a command as it prints it. [What options mean](command-line.md)."
    return done.stdout.replace("# `gensor-tune`", "# Help of every command" + opening, 1)
