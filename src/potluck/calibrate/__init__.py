"""Virtual time against a clock: real processes with limits, fitted figures, a certificate of the errors."""
