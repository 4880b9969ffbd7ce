"""Shipped databases, one per compute capability, as package data."""
