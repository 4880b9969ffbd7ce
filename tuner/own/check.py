"""Checks of users' kernels in a database, for `gensor-tune verify`."""

from __future__ import annotations

import json

from gensor_database.record import Binary, Kernel
from gensor_database.store import Store
from gensor_kernels.build.nvrtc import compile_cubin, toolchain
from gensor_kernels.errors import ConfigError
from gensor_kernels.own.configuration import bind
from gensor_kernels.own.description import Description
from gensor_kernels.own.stored import knobs_of


def difference(store: Store, kernel: Kernel, binary: Binary, compiled: bool) -> str | None:
    """Return how a stored kernel differs from its description and source, or None; `compiled`: also its cubin."""
    try:
        description, knobs = Description.from_json(kernel.class_key), knobs_of(kernel.program)
    except ConfigError as error:
        return str(error)
    source = store.source(binary)
    if source is None or source.digest != description.source:
        return "its source is missing, or not the one that it was described with"
    if knobs != json.loads(binary.constants) or knobs.keys() != dict(description.knobs).keys():
        return "its knobs are not those of its binary"
    if compiled and binary.toolchain == toolchain():
        made = compile_cubin(bind(description, source.text.decode(), knobs), binary.target)
        if made.cubin != binary.cubin:
            return made.error or "its cubin differs from the one compiled here"
    return None
