"""Recurrent networks over sequences."""
