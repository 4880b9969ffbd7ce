"""What tuning by a fleet costs: measured task times, Dask with stub tasks, and a model of both (docs/fleet.md)."""
