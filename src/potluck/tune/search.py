"""Successive halving: many candidates with a small part of the budget, few with all of it.

`search` is a generator. It yields the trials it wants next and receives their results, so several methods can be tuned
at once, and a tuning that was killed repeats its decisions from the results on disk.
Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from potluck.tune.candidates import Candidate, Sampler, Settings


@dataclass(frozen=True)
class Wanted:
    """One candidate to be carried on to a share of the budget, with every seed."""

    candidate: Candidate
    rung: int
    share: float


@dataclass(frozen=True)
class Found:
    """What one candidate showed at a rung."""

    score: float  # mean validation accuracy over the seeds
    share: float  # of the budget that was used, at least what was wanted; above 1 if one step is more than all of it
    evaluations: int  # up to there
    passes: float  # over the samples, mean over the clients, of all seeds together


@dataclass
class Rung:
    """One level of the halving: who was there, and how they did."""

    share: float
    scores: dict[int, float] = field(default_factory=dict)  # by the candidate's number
    kept: list[int] = field(default_factory=list)


@dataclass
class Searched:
    """Everything that a search did."""

    candidates: list[Candidate]
    rungs: list[Rung]
    passes: dict[int, float]  # by the candidate's number
    chosen: Candidate

    @property
    def total(self) -> float:
        return sum(self.passes.values())


FIRST_STEP = 1e-6  # a share of the budget that any step passes
Search = Generator[list[Wanted], list[Found], Searched]


def shares_of(trials: int, keep: int) -> list[float]:
    """The shares of the budget of all rungs: 1/9, 1/3 and 1 for twenty trials of which one in three goes on."""
    rungs = 1
    while keep**rungs <= trials and math.ceil(trials / keep**rungs) > 1:
        rungs += 1
    return [keep ** -(rungs - 1 - i) for i in range(rungs)]


def counts_of(trials: int, keep: int, rungs: int) -> list[int]:
    """How many candidates are in each rung. The default settings always stay, beside the best."""
    return [trials, *(min(trials, math.ceil(trials / keep**k) + 1) for k in range(1, rungs))]


def cost_of(counts: Sequence[int], shares: Sequence[float]) -> float:
    """The compute of all rungs, in whole runs."""
    before = [0.0, *shares[:-1]]
    return sum(count * (share - was) for count, share, was in zip(counts, shares, before, strict=True))


def fitted(trials: int, keep: int, step: float) -> tuple[list[int], list[float]]:
    """The rungs of a method that can stop after whole steps only, each `step` of the budget.

    Its rungs are rounded to whole steps. It tries fewer candidates, so that it costs no more than other methods.
    """
    shares = shares_of(trials, keep)
    allowance = cost_of(counts_of(trials, keep, len(shares)), shares)
    rounded = sorted({min(1.0, max(1, round(share / step)) * step) for share in shares[:-1]} | {1.0})
    paid = [math.ceil(share / step - 1e-9) * step for share in rounded]  # the last step may pass the end
    while trials > 2 and cost_of(counts_of(trials, keep, len(rounded)), paid) > allowance + 1e-9:
        trials -= 1
    return counts_of(trials, keep, len(rounded)), rounded


def search(sampler: Sampler, trials: int, keep: int, default: Settings) -> Search:
    """Try the default settings first, then the sampler's candidates, and carry the best on."""
    usual = Candidate(0, default)
    passes: dict[int, float] = {}
    (found,) = yield [Wanted(usual, 0, FIRST_STEP)]  # its first evaluation shows how large a step is
    step = found.share / max(1, found.evaluations) or 1.0  # what uses none of the budget is carried out whole
    counts, shares = fitted(trials, keep, step)
    rung, everyone = Rung(shares[0]), [usual]
    while not rung.scores or len(everyone) < counts[0]:
        drawn = sampler.ask(min(counts[0] - len(everyone), sampler.wave or counts[0]))
        new = [Candidate(len(everyone) + i, settings) for i, settings in enumerate(drawn)]
        here = new if rung.scores else [usual, *new]
        if not here:
            break  # the space has no more
        results = yield [Wanted(one, 0, shares[0]) for one in here]
        for one, result in zip(here, results, strict=True):
            rung.scores[one.number], passes[one.number] = result.score, result.passes
        sampler.tell([(one.settings, rung.scores[one.number]) for one in here])
        everyone += new
    rungs = [rung]
    for level, (count, share) in enumerate(zip(counts[1:], shares[1:], strict=True), start=1):
        best = ranked(rungs[-1])[: max(1, min(count, len(everyone)) - 1)]
        kept = sorted({0, *best})
        rungs[-1].kept = kept
        results = yield [Wanted(everyone[number], level, share) for number in kept]
        rungs.append(Rung(share, {n: result.score for n, result in zip(kept, results, strict=True)}))
        passes |= {n: result.passes for n, result in zip(kept, results, strict=True)}
    winner = ranked(rungs[-1])[0]
    rungs[-1].kept = [winner]
    return Searched(everyone, rungs, passes, everyone[winner])


def ranked(rung: Rung) -> list[int]:
    """The candidates of a rung, the best first; of equal ones the earlier, so the default settings win a tie."""
    return sorted(rung.scores, key=lambda number: (-rung.scores[number], number))
