"""Whole models: launches, memory and traffic, counted."""
