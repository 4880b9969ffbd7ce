"""Stands for a walk, in spawned children too: a function of a module that is quick to import."""

import time


def quick(request):
    """The request's number, a little later."""
    time.sleep(0.05)
    return request.seed
