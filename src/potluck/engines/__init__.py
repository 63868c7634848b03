"""Engines: each one implements `potluck.fleet.Fleet`, so the same method file runs on all of them.

`local` simulates a fleet in virtual time, `flower` reaches clients on other machines, `serial` speaks to
microcontrollers. They do not import one another. What they share is in this folder: the log, the prices of tasks, the
executor of client programs, the clients' stacked samples, and `gather`.
"""
