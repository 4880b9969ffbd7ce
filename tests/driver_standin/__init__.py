"""An unchanged CuPy over the strict double of the driver, in a separate process."""
