"""Count phrases that an English-speaking engineer would not write, in comments, docstrings and Markdown.

`python -m tests.project.plain_english [--list] [PATH ...]` prints the count of each pattern, with --list every place.
Code, code blocks and CHANGELOG.md do not count.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from .structure import ROOT, tracked_files

#: (pattern, write instead)
PATTERNS = (
    (r"\bbehind\b", "after, following"),
    (r"\bin front of\b", "before, ahead of"),
    (r"\b(told|tells?|telling)\b", "reports, describes, shows"),
    (r"\b(lie|lies|lay|lain|lying)\b", "is stored, is laid out, layout"),
    (r"\bbeside\b", "next to, compared with"),
    (r"\banew\b", "again"),
    (r"\b(at hand|(can|cannot|could|to) be had)\b", "available"),
    (r"\bso (many|much) (of|as|for)?\b", "the number itself"),
    (r"\bask(s|ed|ing)? (for|of|about|whether)\b", "requests, queries, checks"),
    (r"\bfor want of\b", "without"),
    (r"\b(foreseen|foresees?)\b", "predicted"),
    (r"\bmend(s|ed|ing)?\b", "fix"),
    (r"\b(goes|go|went|going) on\b", "continues"),
    (r"\b(not|no|nothing|nobody|none)\b[^.;:]{0,40}\bany more\b", "no longer"),
    (r"\b(is|are|was|were|be|all) (all )?right\b", "correct"),
    (r", too[.,;:)]", "also"),
    (r"(^|[.:;] )(Those|These|Such|None|So|What|Of) [a-z]", "begin with the noun"),
    (r"\b(which|that|what) (nobody|nothing|none|no one)\b", "turn the sentence round"),
    (r"\bas (it|they|rows|operands|arrays|kernels) (lie|lies|stand|stands|come|comes)\b", "name the layout"),
    (r"\b(whose|of) (its|their) own\b", "its own"),
    (r"\b(alike|likewise|thereof|therein|whence|hence)\b", "also, the same, so"),
    (r"\b(hold|holds|held|good) (good|true) (of|for)\b", "applies to"),
    (r"\bwhoever\b|\bwhomever\b", "anyone who, the caller"),
)
#: The changelog quotes old words, and this file lists them.
OMITTED = ("CHANGELOG.md", "tests/project/plain_english.py")
SUFFIXES = (".py", ".md", ".cu", ".cuh", ".h", ".cpp")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line numbers and texts of everything in a file that is prose."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".md":
        fenced = False
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced:
                yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)
    elif path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False):
                literal = node.body[0].value
                yield from enumerate(literal.value.splitlines(), literal.lineno)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    else:
        for number, line in enumerate(text.splitlines(), 1):
            if "//" in line:
                yield number, line[line.index("//") :]


def hits(paths: list[str]) -> list[tuple[str, str]]:
    """Return (pattern, place) of every phrase in tracked files under these paths; all files without any path."""
    found = []
    for name in tracked_files():
        if name.endswith(SUFFIXES) and name not in OMITTED and (not paths or name.startswith(tuple(paths))):
            for number, line in prose(ROOT / name):
                for pattern, _ in PATTERNS:
                    found += [(pattern, f"{name}:{number}: {line.strip()[:150]}")] * len(re.findall(pattern, line))
    return found


def main(arguments: list[str]) -> None:
    found = hits([each for each in arguments if each != "--list"])
    for pattern, instead in PATTERNS:
        places = [place for each, place in found if each == pattern]
        if places:
            shown = places if "--list" in arguments else ()
            print(f"{len(places):6d}  {pattern}  ->  {instead}", *shown, sep="\n        ")
    print(len(found), "hits")


if __name__ == "__main__":
    main(sys.argv[1:])
