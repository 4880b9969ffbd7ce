"""Costs of tuning by a fleet: measured task times, Dask with stub tasks, and a model of both (docs/fleet.md)."""
