"""From files to graphs."""
