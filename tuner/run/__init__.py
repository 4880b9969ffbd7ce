"""One run of the tuner: from the rows of a shapes file to verified kernels."""
