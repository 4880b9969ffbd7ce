"""Hardware facts, and the roofline over them."""
