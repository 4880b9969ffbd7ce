"""Stands for a walk, in children too: a function of a module."""

import time


def quick(request):
    """The request's number, a little later."""
    time.sleep(0.05)
    return request.seed
