"""The Flower engine: the same fleet over Flower's Grid, on real machines or in its simulation on Ray.

Flower gives transport, node identity and TLS; here is what it lacks: a queue per client, private state that survives,
tasks that are answered once however often they are asked, and reasons for what was lost. `flwr` itself is imported by
`grid.py` and `node.py` only; everything else speaks to a `Wire`, which fits on a page.
"""
