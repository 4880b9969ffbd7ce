"""The installed CuPy's driver calls, over a stand-in for libcuda.so.1 that is built here and executes nothing."""
