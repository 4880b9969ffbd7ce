"""On what: hardware facts and the roofline over them."""
