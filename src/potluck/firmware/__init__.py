"""The FedCFC client for microcontrollers: build it, run it under emulation, use boards as clients of a run."""
