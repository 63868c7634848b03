"""What a terminal shows while runs go on: a line for one run, a table for several."""
