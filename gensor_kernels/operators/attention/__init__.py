"""Scaled dot-product attention."""
