"""Channels first or last in memory: chosen over a whole graph by predicted time, and weights laid out to suit."""
