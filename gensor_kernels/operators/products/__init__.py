"""Matrix products: plain, gated, normalised, quantised, grouped."""
