"""The search: the construction graph, its Markov walk, verification and the command line."""

if __name__ != "gensor_tuner":
    raise ImportError(
        "this folder installs as gensor_tuner: run 'pip install -e .' and import gensor_tuner, "
        "so that no class exists twice"
    )
