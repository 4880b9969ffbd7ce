"""The `gensor-tune` command from its first moment on: Ctrl-C while it is still loading, and closed output streams."""

from __future__ import annotations

import os
import sys

STOPPED = "gensor-tune: stopped; what was done is kept, run the same command again to go on"


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: print would take one stream for the other
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    try:
        from .cli import main as run

        run()
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
