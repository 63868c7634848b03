"""Answers that several methods share: who takes part, what a local step is, how updates are merged."""
