"""The arithmetic of a report: comparisons, curves, costs, trade-offs and the sentences about them."""
