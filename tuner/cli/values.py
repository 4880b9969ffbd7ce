"""Values of a command line, converted without pydantic, which takes longer to load than most commands run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from typer import BadParameter, core

#: Types of values, and what one that cannot be converted is not.
KINDS = {str: "text", Path: "a path", int: "a whole number", float: "a number"}


class Values:
    """Converts the values of one parameter as typer does, with sentences about numbers that people can read."""

    def __init__(self, descriptor: Any):
        self.kind, self.info = descriptor.annotation, descriptor.parameter_info
        self.kind = get_args(self.kind)[0] if self.kind not in KINDS and get_args(self.kind) else self.kind

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the converted value, or a list of them; BadParameter for one that is no number or out of bounds."""
        if param.multiple or param.nargs == -1:
            return () if value is None else [self._converted(each, param, ctx) for each in value]
        return None if value is None else self._converted(value, param, ctx)

    def _converted(self, value: Any, param: Any, ctx: Any) -> Any:
        reason = f"'{str(value)[:40]}' is not {KINDS[self.kind]}"
        try:
            found = self.kind(value)
        except ValueError:
            raise BadParameter(reason, ctx=ctx, param=param) from None
        low, high = self.info.min, self.info.max
        if (low is not None and not found >= low) or (high is not None and not found <= high):
            most = "" if high is None else f" and at most {high:g}"
            raise BadParameter(f"{value} is not at least {low:g}{most}", ctx=ctx, param=param)
        return found


def convert_plainly() -> None:
    """Let typer convert values here; an older typer, which has no `build_runtime_param`, converts without pydantic."""
    if hasattr(core, "build_runtime_param"):
        core.build_runtime_param = Values  # type: ignore
