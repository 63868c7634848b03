"""Choose settings on validation rows, with the same compute for every method.

`request` says what is asked, `candidates` draws settings, `search` decides which of them go on. `trial` carries one
out, `tuning` does it all in a folder that can be resumed, `result` writes what was found, `chosen` does both.
"""
