"""Headers that the contraction families share."""
