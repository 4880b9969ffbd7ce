"""From a family's `.cu` file to the one text a compiler gets.

Two steps, both pure text: `flatten` inlines the project's own headers, `bind` prepends the constants of a Program
as `#define`s. The flattened text is the same for every Program of a family, so the store keeps it once, without what no
compiler reads (`code`); emulator and NVRTC work on the bound text, which therefore depends on no file and no folder.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

#: Device code, one folder per kernel family. Base names are unique: digests and `#line` contain nothing else.
SOURCES = Path(__file__).resolve().parent.parent

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"')
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|endif)\b")
_PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b")
_DECLARED = re.compile(r"^#pragma parameter (\w+) (.*)")
_PARAMETER = re.compile(r"^[ \t]*#[ \t]*ifndef[ \t]+([A-Za-z]\w*)[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_INT64 = range(-(2**63) + 1, 2**63)


def flatten(file_name: str, folder: Path = SOURCES) -> str:
    """Return the text of the file of this base name below `folder`, every `#include "x"` of a file there inlined once.

    `#line` directives keep compiler messages pointing at the real file and line. Includes of anything else
    stay as they are (the emulator's own header, in a branch no GPU compiler takes). `#pragma once` becomes an
    empty line, because the result is one main file. `#pragma parameter NAME VALUE` declares a macro that `bind` may
    define, and its value where it does not. Raises ValueError with file and line where a header is
    inlined inside a conditional and included again elsewhere: the second place would silently go without it; and
    where two files below `folder` have one base name.
    """
    if folder == SOURCES:
        return _flatten_installed(file_name)
    return "".join(_inline(file_name, files(folder), {}, conditional=False))


def files(folder: Path = SOURCES) -> dict[str, Path]:
    """Return the sources and headers below `folder` by base name."""
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.cu*")):
        if found.setdefault(path.name, path) != path:
            raise ValueError(f"{path} and {found[path.name]} have one base name")
    return found


@cache  # the installed sources do not change under a running process; other folders may
def _installed_files() -> dict[str, Path]:
    return files()


@cache
def _flatten_installed(file_name: str) -> str:
    return "".join(_inline(file_name, _installed_files(), {}, conditional=False))


def _inline(file_name: str, paths: Mapping[str, Path], seen: dict[str, bool], conditional: bool) -> list[str]:
    """Return the lines of one file; `seen` maps each inlined file to whether a conditional surrounds it."""
    seen[file_name] = conditional
    lines = [f'#line 1 "{file_name}"\n']
    depth = 0
    for number, line in enumerate(paths[file_name].read_text(encoding="utf-8").splitlines(), 1):
        condition = _CONDITION.match(line)
        if condition:
            depth += -1 if condition[1] == "endif" else 1
        include = _INCLUDE.match(line)
        if include and include[1] in paths:
            name, inside = include[1], conditional or depth > 0
            if name not in seen:
                lines += _inline(name, paths, seen, inside)
                lines.append(f'#line {number + 1} "{file_name}"\n')
                continue
            if seen[name]:
                raise ValueError(f"{file_name}({number}): {name} was already inlined inside a conditional")
            line = ""
        if line.startswith("#pragma parameter"):
            declared = _DECLARED.match(line)
            if declared is None or line.endswith("\\"):
                raise ValueError(f"{file_name}({number}): expected one line of #pragma parameter NAME VALUE")
            name, value = declared.groups()
            lines.append(f'#ifndef {name}\n#define {name} {value}\n#endif\n#line {number + 1} "{file_name}"\n')
            continue
        lines.append("\n" if _PRAGMA_ONCE.match(line) else line + "\n")
    return lines


def code(text: str) -> str:
    """Return a text without comments, line numbers and blank lines: its digest is the key of a stored source.

    A changed comment therefore changes no key. One comment is left per file: its name.
    """
    found, file = [], ""
    for line in _COMMENT.sub(lambda each: each[1] or " ", text).splitlines():
        if line.startswith("#line "):
            if file != (file := line.split('"')[1]):
                found.append(f"// ---- {file}\n")
        elif line.strip():
            found.append(line.rstrip() + "\n")
    return "".join(found)


def parameters(text: str) -> frozenset[str]:
    """Return the names that `bind` may define in a flattened text: macros that `#ifndef NAME` guards."""
    return frozenset(_PARAMETER.findall(text))


def bind(text: str, constants: Mapping[str, int | str]) -> str:
    """Return `text` after one `#define` per constant, sorted by name.

    Values are integers or single identifiers (type tokens such as `half_t`), so that constants read from a database
    cannot carry statements or directives.  Raises ValueError for any other value, and for a name that is no parameter
    of the text: a misspelt constant would otherwise compile the default.
    """
    known = parameters(text)
    lines = []
    for name in sorted(constants):
        if name not in known:
            raise ValueError(f"the source has no parameter {name!r}")
        lines.append(f"#define {name} {_token(name, constants[name])}\n")
    return "".join(lines) + text


def _token(name: str, value: int | str) -> str:
    if isinstance(value, str):
        if not _IDENTIFIER.match(value):
            raise ValueError(f"constant {name}={value!r} is neither an integer nor an identifier")
        return value
    number = int(value)
    if number != value or number not in _INT64:
        raise ValueError(f"constant {name}={value!r} does not fit a 64-bit integer")
    return str(number) if number >= 0 else f"({number})"


def digest(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal: the key of sources in the store and in caches."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
