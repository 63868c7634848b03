"""Runs on real machines.

`commands.py` has what `potluck deploy` does, `layout.py` the folders, `keys.py` certificates and keys. `server/` is the
server half and `client/` the client half; they meet in the messages of `engines/flower/protocol.py`. `simulated.py`
runs both halves in Flower's own simulation. `doctor.py` finds out what keeps a deployment from working.
"""
