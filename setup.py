"""Packages by discovery; everything else is in pyproject.toml.

The folders `tuner` and `database` have the names of the installed packages `gensor_tuner` and `gensor_database`, which
setuptools cannot discover from pyproject.toml.
"""

from setuptools import find_packages, setup

FOLDERS = {"gensor_kernels": "gensor_kernels", "gensor_tuner": "tuner", "gensor_database": "database"}

setup(
    packages=[
        name for top, folder in FOLDERS.items() for name in (top, *(f"{top}.{x}" for x in find_packages(folder)))
    ],
    package_dir=FOLDERS,
)
