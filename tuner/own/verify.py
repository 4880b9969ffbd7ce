"""Verification of a user's kernel: executed from PTX at small sizes, and compared with his reference."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gensor_kernels.devices.ptx.execute import PtxFault
from gensor_kernels.errors import ConfigError, GensorError
from gensor_kernels.operators.tolerance.own import own_bound
from gensor_kernels.own.configuration import Configuration, Given, draw
from gensor_kernels.own.description import NUMBER, WRITTEN, Description
from gensor_kernels.own.expressions import evaluate

#: Sizes are halved to at most this number by default.
SMALL = 128
#: Orders of blocks, warps and lanes; races are found in the first.
ORDERS: tuple[str | int, ...] = ("forward", "reverse", 1)

Reference = Callable[..., Any]
#: Takes arguments, which it may write to, constants and sizes.
Launch = Callable[[Sequence[Given], Mapping[str, np.ndarray], Mapping[str, int]], None]


class LaunchError(GensorError):
    """A launch on a device failed, or wrote where it may not; the message says how."""


@dataclass(frozen=True)
class Verdict:
    """The result of executing a configuration: "ok", "wrong" or "failed", why, and the largest error over its bound."""

    outcome: str
    detail: str = ""
    worst: float = 0.0
    sizes: Mapping[str, int] | None = None


def assigned(values: Mapping[str, object]) -> str:
    """Return knobs or sizes as a text of NAME=VALUE."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def small(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return sizes for verification: halved while they are even and above SMALL."""
    made = dict(sizes)
    for name, value in sizes.items():
        while value > SMALL and value % 2 == 0:
            value //= 2
        made[name] = value
    return made


def _wide(array: np.ndarray) -> np.ndarray:
    kind = {"f": np.float64, "c": np.complex128}.get(array.dtype.kind)
    return array.copy() if kind is None else array.astype(kind)


def expect(
    description: Description,
    reference: Reference,
    arguments: Sequence[Given],
    constants: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
) -> list[np.ndarray]:
    """Return what the reference gives for every array that is written; ConfigError where its shapes do not fit."""
    pairs = zip(description.arguments, arguments, strict=True)
    read = [value for what, value in pairs if isinstance(value, np.ndarray) and what.role != WRITTEN]
    given = [_wide(array) for array in (*read, *constants.values())]
    keywords = {name: value for name, value in sizes.items() if _takes(reference, name)}
    try:
        found = reference(*given, **keywords)
    except Exception as error:
        shapes = ", ".join(str(array.shape) for array in given)
        raise ConfigError(
            f"the reference raises {type(error).__name__}: {error} (given arrays of {shapes or 'none'}"
            f"{f' and {assigned(keywords)}' if keywords else ''})"
        ) from error
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    written = [
        value
        for what, value in zip(description.arguments, arguments, strict=True)
        if isinstance(value, np.ndarray) and what.role not in ("in", NUMBER)
    ]
    if len(results) != len(written):
        raise ConfigError(f"the reference returns {len(results)} arrays, the kernel writes {len(written)}")
    made = []
    for number, (result, array) in enumerate(zip(results, written, strict=True)):
        value = np.asarray(result)
        if value.size != array.size:
            raise ConfigError(
                f"array {number} of the reference has the shape {value.shape}, the kernel's {array.shape}, "
                f"at {assigned(sizes)}"
            )
        made.append(value.reshape(array.shape))
    return made


def _takes(reference: Reference, name: str) -> bool:
    try:
        parameters = inspect.signature(reference).parameters
    except (TypeError, ValueError):
        return False
    every = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    return every or (name in parameters and parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY)


class Check:
    """Verification of configurations against one reference, whose results are computed once for each sizes."""

    def __init__(
        self, description: Description, reference: Reference, sizes: Mapping[str, int], most: Mapping[str, int]
    ):
        self.description, self.reference, self.sizes, self.most = description, reference, dict(sizes), dict(most)
        self._expected: dict[object, list[np.ndarray]] = {}

    def __call__(self, configuration: Configuration) -> Verdict:
        """Execute a configuration in several orders; UnsupportedError for what cannot be executed here."""
        orders = enumerate(ORDERS)
        return self.of(
            configuration, [partial(configuration.run, order=each, ordered=turn == 0) for turn, each in orders]
        )

    def of(self, configuration: Configuration, runs: Sequence[Launch]) -> Verdict:
        """Return the verdict on a configuration after these launches, each over fresh arguments."""
        sizes = self._fitting(configuration)
        worst = 0.0
        for run in runs:
            names = {**dict(configuration.knobs), **sizes}
            arguments, constants = draw(self.description, names, seed=0)
            expected = self._expect(arguments, constants, sizes)
            try:
                run(arguments, constants, sizes)
            except (PtxFault, LaunchError) as fault:
                return Verdict("failed", str(fault), sizes=sizes)
            terms = int(evaluate(self.description.terms, names))
            written = [each for each in arguments if isinstance(each, np.ndarray)]
            roles = [each.role for each in self.description.arguments if each.role != NUMBER]
            outputs = [array for array, role in zip(written, roles, strict=True) if role != "in"]
            for number, (got, right) in enumerate(zip(outputs, expected, strict=True)):
                error, detail = _compare(got, right, terms)
                if error > 1:
                    return Verdict("wrong", f"array {number}: {detail}", error, sizes)
                worst = max(worst, error)
        return Verdict("ok", worst=worst, sizes=sizes)

    def _fitting(self, configuration: Configuration) -> dict[str, int]:
        """Return sizes at which a configuration with large tiles can be launched: doubled, up to those tuned for."""
        sizes, knobs = dict(self.sizes), dict(configuration.knobs)
        while not self.description.fits({**knobs, **sizes}):
            larger = {name: min(2 * value, max(self.most[name], value)) for name, value in sizes.items()}
            if larger == sizes:
                raise ConfigError(
                    f"{self.description.name} cannot be launched at {assigned(sizes)} with {assigned(knobs)}"
                )
            sizes = larger
        return sizes

    def _expect(
        self, arguments: Sequence[Given], constants: Mapping[str, np.ndarray], sizes: Mapping[str, int]
    ) -> list[np.ndarray]:
        shapes = tuple(each.shape for each in arguments if isinstance(each, np.ndarray))  # knobs may pad them
        key = (tuple(sorted(sizes.items())), shapes)
        if key not in self._expected:
            self._expected[key] = expect(self.description, self.reference, arguments, constants, sizes)
        return self._expected[key]


def _compare(got: np.ndarray, right: np.ndarray, terms: int) -> tuple[float, str]:
    """Return the largest error over its bound, and where it is."""
    bound = own_bound(right, got.dtype.name, terms)
    wide = got.astype(right.dtype if right.dtype.kind in "fc" else np.float64)
    with np.errstate(all="ignore"):
        away = np.abs(wide - right)
        same = (wide == right) | (np.isnan(wide) & np.isnan(right))
        error = np.where(same, 0.0, away / np.maximum(bound, np.finfo(np.float64).tiny))
    error = np.where(np.isnan(error), np.inf, error)
    if not error.size:
        return 0.0, ""
    at = np.unravel_index(int(np.argmax(error)), error.shape)
    place = ", ".join(str(int(each)) for each in at)
    return float(error[at]), f"element ({place}) is {got[at]}, the reference has {right[at]}"
