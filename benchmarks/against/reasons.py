"""Why a library's result differs from Potluck's: the line, what it does, and whose form is the paper's.

`--repaired` of a driver changes these lines, and the table shows the difference that is left. Lines are those of
fluke-fl 0.8.1 and of PFLlib at d832e76.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    lines: str
    what: str
    paper: str  # whose form is the paper's


FLUKE = "fluke/algorithms"
CLIENTS, SERVERS = "system/flcore/clients", "system/flcore/servers"
REASONS: dict[tuple[str, str], Reason] = {
    ("fluke", "pfedme"): Reason(
        f"{FLUKE}/pfedme.py:125 and 134",
        "Line 125 hands over the model's own parameters, so the proximal term is lambda (theta - theta), always 0. "
        "Line 134 then overwrites w with theta, and the client sends theta. "
        "What is left is FedAvg with K steps on each batch.",
        "Potluck's. Algorithm 1 pulls theta towards w, and sends w.",
    ),
    ("fluke", "apfl"): Reason(
        f"{FLUKE}/apfl.py:91 and 105, fluke/utils/model.py:724",
        "The mixed model is a copy, so its gradient never reaches the personal model v, which is not trained at all. "
        "Line 105 replaces v by the mix after every round.",
        "Potluck's. v follows the gradient of the mix, and the mix is not written back to v.",
    ),
    ("fluke", "perfedavg"): Reason(
        f"{FLUKE}/per_fedavg.py:173",
        "The outer step starts at w', after the inner step, instead of at w. "
        "So a round takes two plain steps per pair of batches. A client is scored without a personal step.",
        "Potluck's. Algorithm 1 steps from w, and a user adapts the model by one step before using it.",
    ),
    ("fluke", "fedproto"): Reason(
        f"{FLUKE}/fedproto.py:147, 162, 163 and 216",
        "Line 162 does not score a client without class 0; here it counts as 0. "
        "A client answers with its own prototypes, so never with a class that it lacks. "
        "Prototypes are taken while the model still changes, and their mean is not weighted.",
        "Potluck's. Eq. (3), (6) and (8) with the prototypes of all clients.",
    ),
    ("pfllib", "pfedme"): Reason(
        f"{CLIENTS}/clientpFedMe.py:56 and 68",
        "Line 56 keeps the model's own tensors instead of a copy of theta. "
        "Line 68 overwrites them, and so does the next model received. "
        "So the global model is scored as the personal one.",
        "Potluck's. The personal model is theta.",
    ),
    ("pfllib", "apfl"): Reason(
        f"{CLIENTS}/clientapfl.py:50, 56, 59 and 76",
        "The personal model trains alone instead of in the mix, and line 59 replaces it by the mix. "
        "The share alpha moves at every batch; in the authors' code it moves once in a round. "
        "It follows a mix of two gradients with a decay of 0.02, which the authors' code has and the paper has not.",
        "Potluck's. Eq. (4), (5) and (10).",
    ),
    ("pfllib", "perfedavg"): Reason(
        f"{CLIENTS}/clientperavg.py:89",
        "The personal step before scoring uses one batch. Potluck's uses all rows of a client.",
        "Both. The paper leaves open on how many rows a user takes its step.",
    ),
    ("pfllib", "fedala"): Reason(
        f"{SERVERS}/serverala.py:26 and 31",
        "A client is scored after it mixed in the next global model, and before it trains again.",
        "Potluck's. Algorithm 1 returns the clients' models after local training.",
    ),
    ("pfllib", "fedproto"): Reason(
        f"{CLIENTS}/clientproto.py:56, {SERVERS}/serverproto.py:118",
        "Prototypes are taken while the model still changes. "
        "Their mean over clients is not weighted, as in the authors' code.",
        "Potluck's. Eq. (3) uses the trained model, eq. (6) weighs by samples.",
    ),
}

# Why one seed differs between equal codes: these lines draw the order of the mini-batches.
ORDER: dict[str, Reason] = {
    "fluke": Reason(
        "fluke/data/__init__.py:249",
        "torch.randperm draws a new order of a client's rows for each epoch; "
        "Potluck's `keys.permutation` draws another. With all rows in each step the difference is gone.",
        "Both. The papers draw mini-batches at random.",
    ),
    "pfllib": Reason(
        f"{CLIENTS}/clientbase.py:59",
        "DataLoader draws a new order of a client's rows for each epoch; "
        "Potluck's `keys.permutation` draws another. With all rows in each step the difference is gone.",
        "Both. The papers draw mini-batches at random.",
    ),
}
