"""Recurrent networks: their cells, and public functions of whole sequences."""
