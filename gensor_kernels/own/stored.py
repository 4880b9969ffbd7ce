"""A user's kernel in a database: which rows it has there."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gensor_kernels.errors import ConfigError

from .description import Description, Value

#: The family, and the version of what its rows mean.
FAMILY, ABI = "own", 1


def program_text(knobs: Mapping[str, Value]) -> str:
    """Return the canonical JSON of a configuration, as a kernel's row has it."""
    return json.dumps({"family": FAMILY, **knobs}, sort_keys=True, separators=(",", ":"))


def knobs_of(text: str) -> dict[str, Value]:
    """Return the knobs of `program_text`; ConfigError for another text."""
    try:
        body = dict(json.loads(text))
        if body.pop("family") != FAMILY:
            raise ValueError(text[:80])
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"not a configuration of a user's kernel: {error}") from None
    return body


def workload_text(description: Description, sizes: Mapping[str, int]) -> str:
    """Return the key of a record: the kernel and the sizes that it was tuned for."""
    named = {"name": description.name, "source": description.source, "sizes": dict(sizes)}
    return json.dumps({"own": named}, sort_keys=True, separators=(",", ":"))


def name_of(key: str) -> str:
    """Return the kernel's name of `workload_text`; ConfigError for another text."""
    sizes_of(key)
    return str(json.loads(key)["own"]["name"])


def sizes_of(key: str) -> dict[str, int]:
    """Return the sizes of `workload_text`; ConfigError for another text."""
    try:
        return {str(name): int(value) for name, value in json.loads(key)["own"]["sizes"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"not a record of a user's kernel: {error}") from None
