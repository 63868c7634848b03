"""Models gathered, added and rebased, for all their tensors in one call, with the bits of PyTorch."""

from __future__ import annotations

from typing import Any

from potluck.compiled.jit import FLAG, FLOAT, INT, PLACES, TABLE, exact, fused, pointer

Array = Any


@exact(PLACES, FLOAT, PLACES, FLOAT, PLACES, FLOAT, PLACES, PLACES, FLAG)
def blend(
    a: Array, keep: Any, b: Array, by_b: Any, c: Array, by_c: Any, out: Array, counts: Array, both: bool
) -> None:  # fmt: skip
    """out = keep a + by_b b, and with `both` + by_c c: each product but the first is added before it is rounded."""
    for t in range(len(counts)):
        x, y, z, w = pointer(a[t]), pointer(b[t]), pointer(c[t]), pointer(out[t])
        if both:
            for n in range(counts[t]):
                w[n] = fused(by_c, z[n], fused(by_b, y[n], keep * x[n]))
        else:
            for n in range(counts[t]):
                w[n] = fused(by_b, y[n], keep * x[n])


@exact(TABLE, PLACES, PLACES)
def gather(given: Array, out: Array, counts: Array) -> None:
    """Write models one after another into stacks: their addresses are `given` (models, tensors)."""
    for k in range(given.shape[0]):
        for t in range(len(counts)):
            x, z = pointer(given[k, t]), pointer(out[t] + 4 * counts[t] * k)
            for n in range(counts[t]):
                z[n] = x[n]


@exact(PLACES, PLACES, PLACES, TABLE, PLACES, PLACES, PLACES, INT, "uint8[::1]", FLAG)
def rebase(
    new: Array, now: Array, base: Array, steps: Array, to: Array, to_base: Array, counts: Array, clients: int,
    newer: Array, restart: bool,
) -> None:  # fmt: skip
    """to = now + (new - base) and to_base = new for clients with a newer model, now and base for the others.

    Stacks by their addresses; `steps` (3, tensors) has how far the clients' rows are apart in new, now and base.
    """
    for k in range(clients):
        for t in range(len(counts)):
            x, y = pointer(new[t] + 4 * steps[0, t] * k), pointer(now[t] + 4 * steps[1, t] * k)
            z = pointer(base[t] + 4 * steps[2, t] * k)
            v, w = pointer(to[t] + 4 * counts[t] * k), pointer(to_base[t] + 4 * counts[t] * k)
            if not newer[k]:
                for n in range(counts[t]):
                    v[n] = y[n]
                for n in range(counts[t]):
                    w[n] = z[n]
                continue
            if restart:
                for n in range(counts[t]):
                    v[n] = x[n]
            else:
                for n in range(counts[t]):
                    v[n] = y[n] + (x[n] - z[n])
            for n in range(counts[t]):
                w[n] = x[n]
