"""Experiments of the FedCFC paper that are not a run: Figures 3, 4 and 11 and Table 2. See `potluck study`."""
