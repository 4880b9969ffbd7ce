"""Tuning by many machines, on Dask: the only folder that imports `distributed`, and only for a cluster."""
