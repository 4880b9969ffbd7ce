"""Code that the contraction families share; one folder per main loop."""
