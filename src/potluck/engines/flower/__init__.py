"""The Flower engine: the same fleet over Flower's Grid, on real machines or in its simulation on Ray.

Flower provides transport, node identity and TLS. This engine adds what it lacks: a queue per client, private state that
survives a restart, tasks that are answered once however often they are asked, and a reason for each lost task.
`server/` is the server half, `client/` the client half, `protocol.py` what they say to each other. Only `transport.py`
and `client/connection.py` import `flwr`. All other code uses the `Transport` protocol; a fake of it fits on a page.
"""
