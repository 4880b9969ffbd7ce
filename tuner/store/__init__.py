"""Rows of the database: written, checked, merged, upgraded and printed."""
