"""What is remembered: kernels, records and timings in SQLite. Imports nothing of the other packages."""

if __name__ != "gensor_database":
    raise ImportError(
        "this folder installs as gensor_database: run 'pip install -e .' and import gensor_database, "
        "so that no class exists twice"
    )
