"""Walks that are made once: tests request many equal ones."""

from functools import cache

from gensor_tuner.strategies.request import search

remembered = cache(search)
