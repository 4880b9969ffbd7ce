"""Links to the packages under their import names, for a machine where nothing can be installed.

python -m benchmarks.links                      # makes the folder .links with three links, and prints its path
PYTHONPATH=$(python -m benchmarks.links) python -m benchmarks.device --out results
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: As in pyproject.toml: the folder of each package.
FOLDERS = {"gensor_kernels": "gensor_kernels", "gensor_database": "database", "gensor_tuner": "tuner"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where something else has the name of a link, or no link can be made."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.links", description=__doc__.splitlines()[0])
    made.add_argument("folder", type=Path, nargs="?", default=ROOT / ".links", help="default: .links of the repository")
    folder = made.parse_args(arguments).folder.absolute()
    try:
        link(folder)
    except OSError as error:
        print(f"benchmarks.links: {error.filename2 or error.filename or folder}: {error.strerror}", file=sys.stderr)
        return 1
    print(folder)
    return 0


def link(folder: Path) -> None:
    """Make the folder and its links; keep existing links."""
    folder.mkdir(exist_ok=True)
    for package, source in FOLDERS.items():
        place = folder / package
        if not (place.is_symlink() and place.resolve() == ROOT / source):
            place.symlink_to(ROOT / source, target_is_directory=True)


if __name__ == "__main__":
    sys.exit(main())
