"""The FedCFC client for microcontrollers: building it, running it under emulation, and boards as clients of a run."""
