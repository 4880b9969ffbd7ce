"""One drawn call, three ways: a kernel on the emulator, the library's way over NumPy arrays, and an outside reference.

A case compares what a function returns with its reference; here it runs once per way, with the same seed. A quarter of
all seeds draw plain arguments, for which there must be a kernel. The others draw extreme arguments too: those that a
case draws if `draw.extreme` is set, and those of `arguments.draw_change`.
"""

import os
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import tiers
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.errors import GensorError, UnsupportedError
from tests.doubles.device import FakeDevice, Numpy

from . import attention, contractions, formats, images, products, recurrent, references, rows
from .arguments import draw_change
from .drawing import Draw
from .serving import Served, first_of, serving

#: Number, function and seed.
Call = tuple[int, str, int]
#: Functions of (draw, served) by the public function's name.
CASES: dict[str, Callable[[Draw, Any], None]] = {
    **rows.CASES, **products.CASES, **contractions.CASES, **images.CASES, **attention.CASES,
    **recurrent.CASES, **formats.CASES,
}  # fmt: skip
#: Architectures whose kernels are called: extreme arguments are drawn for all, plain ones for the first.
ARCHS = ("sm_87", "sm_75", "sm_90")
#: Errors that a caller expects for arguments that do not fit.
EXPECTED = (TypeError, ValueError, GensorError)


class Refused(Exception):
    """Raised in place of an error that a caller expects."""


class Accepted(Exception):
    """Raised for a result of arguments that all ways have to refuse."""


class NoKernel(Exception):
    """Raised in place of the emulator's error for a call that only the array library serves."""


@dataclass
class Outcome:
    """The outcome of one call: "ok", "refused", "no kernel" or "wrong" for each way, and a line if they disagree."""

    name: str
    seed: int
    ways: dict[str, str] = field(default_factory=dict)
    wrong: str = ""


class Way:
    """A stand-in for `Served`: `call` calls a public function by one way, and sorts its errors."""

    def __init__(self, runtime: Runtime, served: Served | None = None):
        self.runtime, self.served = runtime, served
        self.draw, self.called, self.emulated = Draw(0), "", served is not None

    def call(self, function: Callable[..., Any], *arguments: Any, nothing: bool = False, **keywords: Any) -> Any:
        """Call with changed arguments; the result as if they were not."""
        change = draw_change(self.draw, getattr(function, "__name__", ""), arguments, keywords, emulated=self.emulated)
        self.called = describe(function, change.arguments, change.keywords)
        try:
            if self.served is None or self.draw.refused:
                found = function(*change.arguments, **change.keywords)
            else:
                found = self.served.call(function, *change.arguments, nothing=nothing, **change.keywords)
        except EXPECTED as error:
            kind = NoKernel if isinstance(error, UnsupportedError) and self.emulated else Refused
            raise kind(f"{type(error).__name__}: {error}") from error
        if self.draw.refused:
            raise Accepted
        several = isinstance(found, tuple)
        first, out = change.result(first_of(found)), self.draw.result
        assert out is None or first is out, "the result is not out"
        return (first, *found[1:]) if several else first


def describe(function: Any, arguments: Any, keywords: Any) -> str:
    """A call in one line."""

    def text(value: Any) -> str:
        if isinstance(value, np.ndarray) and value.ndim:
            return f"{value.dtype}{list(value.shape)}" + ("" if value.flags.c_contiguous else f"/{value.strides}")
        if isinstance(value, (list, tuple)):
            return f"({', '.join(map(text, value))})"
        return repr(value)

    named = [f"{name}={text(value)}" for name, value in keywords.items() if value is not None]
    name = getattr(function, "__name__", None) or function.expression
    return f"{name}({', '.join([*map(text, arguments), *named])})"


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy that sums float16 and bfloat16 in float32, as CuPy's does."""

    def call(*operands: Any, dtype: Any = None, out: Any = None, **keywords: Any) -> Any:
        narrow = np.result_type(*[each.dtype for each in operands if hasattr(each, "dtype")])
        is_wide = dtype is not None or narrow.name not in ("float16", "bfloat16")
        own = None if is_wide else np.float32
        # Copies: einsum adds elements with a stride of 0 before it multiplies, so that infinities cancel.
        arrays = [np.array(each, own or each.dtype) if hasattr(each, "dtype") else each for each in operands]
        more = {} if dtype is None else {"dtype": dtype}
        result = np.asarray(function(*arrays, **keywords, **more))
        result = result if is_wide else result.astype(narrow)
        if out is None:
            return result
        np.copyto(out, result, casting="same_kind")
        return out

    return call


class Ways:
    """Runs calls by kernels and by the library; kernels are built once per class and architecture."""

    def __init__(self, patch: pytest.MonkeyPatch, stack: ExitStack):
        self.patch = patch
        self.kernels = {arch: stack.enter_context(serving(patch, arch)) for arch in ARCHS}
        names = ("sum", "nansum", "prod", "mean", "nanmean", "einsum", "tensordot", "dot", "inner", "vdot", "outer")
        names = (*names, "cumsum", "cumprod")
        functions = {name: _in_float32(getattr(np, name)) for name in names}
        matmul = _in_float32(np.matmul)
        multiply = lambda a, b, out=None: matmul(a, b, out=out)  # noqa: E731
        library = FakeDevice("sm_87", xp=Numpy(**functions), multiply=multiply)
        self.library = Runtime(library, Library())

    @contextmanager
    def by(self, way: str, arch: str = "sm_87") -> Iterator[Way]:
        """Within it, public functions are computed by a way."""
        served = self.kernels[arch] if way == "kernel" else None
        runtime = served.runtime if served else self.library
        self.patch.setenv("GENSOR_DISABLE", str(int(way == "library")))
        self.patch.setattr(current, "_emulator", lambda name: runtime)
        if served:
            self.patch.setattr(tiers, "generate", served.starter)
        token = references.by_library.set(way == "library")
        try:
            with gensor_kernels.emulated(arch), np.errstate(all="ignore"):
                yield Way(runtime, served)
        finally:
            references.by_library.reset(token)

    def run(self, name: str, seed: int) -> Outcome:
        """One call of the function `name`."""
        found, words, refused, called = Outcome(name, seed), dict[str, str](), "", ""
        extreme = seed % 4 != 0
        arch = "sm_90" if name == "scaled_matmul" else ARCHS[max(seed // 4 % 12 - 9, 0) if extreme else 0]
        for way in ("kernel", "library"):
            with self.by(way, arch) as one:
                one.draw = Draw(seed, extreme)
                found.ways[way], words[way] = _outcome(CASES[name], one)
            refused, called = one.draw.refused, one.called
        found.wrong = verdict(found.ways, words, refused)
        if not found.wrong and not extreme and found.ways["kernel"] != "ok":
            found.wrong = f"plain arguments: kernel: {words['kernel']}"
        if found.wrong:
            found.wrong = f"{name}:{seed}: {found.wrong}: {called}"
        return found


def _outcome(case: Callable[[Draw, Any], None], way: Way) -> tuple[str, str]:
    """The outcome of a case by one way, and words about it."""
    try:
        case(way.draw, way)
    except Accepted:
        return "ok", "not refused"
    except Refused as error:
        return "refused", str(error)
    except NoKernel as error:
        return "no kernel", str(error)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({os.path.basename(last.filename)}:{last.lineno})"
        return "wrong", " ".join(text.split())
    return "ok", ""


def verdict(ways: dict[str, str], words: dict[str, str], refused: str) -> str:
    """The disagreement of one call's outcomes in words, empty where all ways agree."""
    kernel, library = ways["kernel"], ways["library"]
    wrong = [f"{way}: {words[way]}" for way in ways if ways[way] == "wrong"]
    if wrong:
        return "; ".join(wrong)[:600]
    if refused:
        return "" if library == "refused" and kernel != "ok" else f"{refused}, and not refused: {ways}"
    if library == "refused" or kernel == "refused":
        return f"refused, not by all: {ways} {words}"[:600]
    return ""


@contextmanager
def three_ways() -> Iterator[Ways]:
    """Ways whose emulated kernels are built once per class."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        yield Ways(patch, stack)


def nth_call(number: int, seed: int) -> tuple[str, int]:
    """The function and the seed of call `number` of a run."""
    names = list(CASES)
    return names[number % len(names)], int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)


def outcomes_of(calls: Iterable[Call]) -> Iterator[tuple[int, Outcome]]:
    """Each call's number and what became of it."""
    with three_ways() as ways, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, name, seed in calls:
            yield number, ways.run(name, seed)


def list_outcomes(calls: Iterable[Call]) -> list[tuple[int, Outcome]]:
    """The same as a list, from another process."""
    return list(outcomes_of(calls))
