"""The two ways in which a cluster fails."""

from gensor_kernels.errors import GensorError


class FleetError(GensorError):
    """The cluster cannot be used; what was reported is stored."""


class LostTaskError(Exception):
    """A task that no worker could finish."""
