"""The Operator class, and the view of a Workload that kernel families get."""
