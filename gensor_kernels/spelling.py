"""Names as people write them: other cases and separators, common synonyms, and near misses.

Shapes files, command lines and functions read operators, element types, parts and columns through this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: Similarity (difflib's ratio) from which a name is suggested: `epilog` and `epilogue` have 0.86, `comment` and `count`
#: 0.67.
NEAR = 0.7
#: Shorter names are suggested only where they equal the word: `ms` is not a misspelt `m`.
SHORTEST = 3
#: Longest part of a word that is compared or shown, and the most names in a message.
LONGEST, MOST = 40, 12


def squeezed(word: str) -> str:
    """Return a word in lower case without spaces, `_`, `-` and `.`.

    Examples
    --------
    >>> squeezed("Orin-Nano 8GB")
    'orinnano8gb'
    """
    return re.sub(r"[\s_.-]", "", word[: 4 * LONGEST]).casefold()


def find(word: str, names: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str | None:
    """Return the name that a word spells: the same but for case and separators, or one of its synonyms; else None.

    Examples
    --------
    >>> find("Conv2D", ["matmul", "conv2d"])
    'conv2d'
    >>> find("GEMM", ["matmul", "conv2d"], {"gemm": "matmul"})
    'matmul'
    """
    return _by_spelling(names, synonyms).get(squeezed(word))


def near(word: str, names: Iterable[str], synonyms: Mapping[str, str] | None = None) -> list[str]:
    """Return at most three names that a word may have meant, the closest first; none where none is near.

    Examples
    --------
    >>> near("epilog", ["op", "epilogue", "dtype"])
    ['epilogue']
    >>> near("Dtype", ["op", "epilogue", "dtype"])
    ['dtype']
    >>> near("colour", ["op", "epilogue", "dtype"])
    []
    """
    from difflib import get_close_matches

    spelt = _by_spelling(names, synonyms)
    word = squeezed(word)
    if word in spelt:
        return [spelt[word]]
    close = get_close_matches(word[:LONGEST], [each for each in spelt if len(each) >= SHORTEST], 3, NEAR)
    return list(dict.fromkeys(spelt[each] for each in close))


def unknown(word: str, names: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """Return an error message about an unknown word: near names, else the known names.

    Examples
    --------
    >>> unknown("matmull", ["matmul", "conv2d"])
    "'matmull' is unknown: did you mean matmul?"
    >>> unknown("fft", ["matmul", "conv2d"])
    "'fft' is not one of matmul, conv2d"
    """
    names, shown = list(names), f"'{word[:LONGEST]}'"
    meant = did_you_mean(near(word, names, synonyms))
    return f"{shown} is unknown: {meant}" if meant else f"{shown} is not one of {listed(names)}"


def did_you_mean(names: Iterable[str]) -> str:
    """Return the question for names that may have been meant, or an empty text where there are none.

    Examples
    --------
    >>> did_you_mean(["trans_a", "trans_b"])
    'did you mean trans_a, trans_b?'
    """
    meant = ", ".join(names)
    return f"did you mean {meant}?" if meant else ""


def listed(names: Iterable[str]) -> str:
    """Return names joined by commas; of long lists, the first."""
    names = list(names)
    more = f" and {len(names) - MOST} more" if len(names) > MOST + 3 else ""
    return ", ".join(names[:MOST] if more else names) + more


def _by_spelling(names: Iterable[str], synonyms: Mapping[str, str] | None) -> dict[str, str]:
    """Return names by their squeezed spellings; a name has priority over a synonym."""
    spelt = {squeezed(word): name for word, name in (synonyms or {}).items()}
    return spelt | {squeezed(name): name for name in names}
