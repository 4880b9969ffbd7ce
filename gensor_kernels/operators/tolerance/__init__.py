"""Error bounds: how far a correct result may be from the float64 reference, derived from dtype and K."""
