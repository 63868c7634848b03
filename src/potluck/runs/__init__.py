"""Runs: an experiment becomes a folder with everything that happened in it."""
