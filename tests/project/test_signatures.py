"""Every public function says whose signature it has, and how it differs from that."""

import importlib
import inspect
import re

import pytest

import gensor_kernels as gk

#: Functions that compute nothing.
TOOLS = {
    "accelerate", "bind", "counters", "deterministic", "emulated", "explain", "from_torch", "fuse", "load", "record",
    "refresh", "warmup",
}  # fmt: skip
#: Functions that no other library has.
OWN = {"define", "elementwise", "global_avg_pool2d", "grouped_matmul", "gru", "lstm", "prepack", "scaled_matmul"}
OWN |= {"quantize", "dequantize"}
FUNCTIONS = [name for name in gk.__all__ if inspect.isfunction(getattr(gk, name)) and name not in TOOLS]
NAME = re.compile(r"`((?:cupy|scipy\.special|torch\.nn\.functional)(?:\.\w+)+)`")


def said(name):
    found = re.search(r"The signature is .+?(?=\n\n)", inspect.getdoc(getattr(gk, name)), re.DOTALL)
    assert found, f"{name} does not say whose signature it has"
    return " ".join(found[0].split())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_docstring_names_the_function_whose_signature_it_has(name):
    words = said(name)
    assert words.startswith(("The signature is its own", "The signature is like")) == (name in OWN), words
    named = NAME.search(words)
    if name in OWN:
        return
    assert named and words.startswith(f"The signature is that of {named[0]}"), words
    library, _, function = named[1].rpartition(".")
    if library.startswith("torch"):
        module = pytest.importorskip("torch.nn.functional")
    else:
        module = importlib.import_module(library)
    try:
        theirs = inspect.signature(getattr(module, function)).parameters
    except ValueError:  # written in C++
        return
    ours = inspect.signature(getattr(gk, name)).parameters
    assert not differences(ours, theirs, words), f"{name}: {words}"


def differences(ours, theirs, words):
    """Parameters with another name, place or default than in the named function, of which `words` say nothing.

    Names of operands are the first letters of the alphabet or of the axes: they are no difference.
    """
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    mine, found = list(ours.values()), []
    for place, each in enumerate(theirs.values()):
        if each.kind in kinds or each.default is each.empty or each.name.startswith("_") or f"`{each.name}`" in words:
            continue
        keyword = each.kind is inspect.Parameter.KEYWORD_ONLY
        own = ours.get(each.name) if keyword else mine[place] if place < len(mine) else None
        if own is None or (own.name, own.default) != (each.name, each.default):
            found.append(each.name)
    extra = [each.name for each in mine if each.name not in theirs and each.default is not each.empty]
    if any(each.kind in kinds for each in theirs.values()):
        extra = []
    return found + [each for each in extra if f"`{each}`" not in words and "further keywords" not in words]


def test_a_difference_is_noticed():
    def theirs(x, axis=None, ord=2, *, dtype=None):
        """Nothing."""

    def ours(a, ord=2, axis=-1, out=None):
        """Nothing."""

    pair = [inspect.signature(each).parameters for each in (ours, theirs)]
    assert differences(*pair, "The signature") == ["axis", "ord", "dtype", "out"]
    assert not differences(*pair, "`axis` and `ord` change places; `out` in the place of `dtype`")
