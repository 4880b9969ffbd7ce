"""Counters, recordings of calls, and dry runs."""
