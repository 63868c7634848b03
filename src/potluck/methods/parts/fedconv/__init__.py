"""Parts of FedConv alone; what it shares with other methods of sub-models is in `parts/submodels`."""
