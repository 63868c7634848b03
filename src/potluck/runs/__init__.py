"""Runs: carry out an experiment and write everything that happens to a folder."""
