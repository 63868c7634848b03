"""FedCFC's server step at 10, 50, 200 and 1,000 clients: the closed form and the paper's semidefinite program.

    python benchmarks/fedcfc_server.py [--size 1024] [--sdp-up-to 50]

The server adds up unit gradients while they arrive. A round waits only for what comes after the last one (`aim`). The
semidefinite program needs all gradients at once, and potluck[sdp]. The difference of the two is between float32
vectors: 0 means equal at that precision.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from potluck import keys
from potluck.methods.parts.fedcfc import cud

CLIENTS = (10, 50, 200, 1000)


def timed(call: Callable[[], object], times: int) -> float:
    """The median of several calls, in seconds."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="D, numbers in a gradient")
    parser.add_argument("--sdp-up-to", type=int, default=50, help="the program takes minutes for more than 200 clients")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'clients':>8}{'aim':>12}{'per gradient':>14}{'sum in all':>12}{'SDP':>10}{'difference':>12}")
    aims = []
    if args.sdp_up_to >= CLIENTS[0]:
        cud.sdp([torch.ones(2)])  # the solver is loaded before it is timed
    for clients in CLIENTS:
        given = [keys.normal(keys.key("lud", i), (args.size,)) + 0.3 for i in range(clients)]
        running = summed(given)
        aim = timed(lambda running=running: (cud.direction(running), cud.magnitude(running)), 200)
        whole = timed(lambda given=given: summed(given), 5)
        aims.append(aim)
        slow, apart = "-", "-"
        if clients <= args.sdp_up_to:
            start = time.perf_counter()
            found = cud.sdp(given)
            slow = f"{time.perf_counter() - start:.2f} s"
            apart = f"{float((found - cud.direction(running)).abs().max()):.1e}"
        each = f"{1e6 * aim:>9.0f} us{1e6 * whole / clients:>11.0f} us{1e3 * whole:>9.2f} ms"
        print(f"{clients:>8}{each}{slow:>10}{apart:>12}", flush=True)
    print(f"aim at {CLIENTS[-1]} clients over aim at {CLIENTS[0]}: {aims[-1] / aims[0]:.2f} (at most 3 wanted)")


def summed(given: list[Tensor]) -> cud.Running:
    running = cud.nothing(given[0].numel())
    for lud in given:
        running = cud.absorb(running, lud)
    return running


if __name__ == "__main__":
    main()
