"""A client's whole round by compiled kernels, where they can do it: float32 weights and exact second derivatives.

The loop of `methods/fedcfc.py` is what they compute, to rounding.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from potluck.fleet import Data, Params
from potluck.learn import Bound, Pull, Recipe, bound_sgd
from potluck.methods.parts.fedcfc import precision
from potluck.methods.parts.fedcfc.bind import Terms
from potluck.methods.parts.fedcfc.cud import SMALLEST, Aim
from potluck.models import Model


def compiled(
    model: Model,
    kept: Params,
    data: Data,
    rows: Tensor,
    counts: Tensor,
    recipe: Recipe,
    pull: Pull | None,
    head: Literal["f", "g", "h"],
    terms: Terms,
    aim: Aim,
    lud: str,
) -> tuple[Params, Tensor] | None:
    """The weights after all steps, and the sum of their gradients by V; None where kernels cannot."""
    if precision.form_of(kept) != "float32" or terms.second != "exact":
        return None
    bound = None
    if aim.cud.numel():
        weights = (terms.lambda_d, terms.lambda_m, terms.lambda_a)
        printed = terms.ra_form == "printed"
        bound = Bound(head, aim.cud, aim.cum, weights, terms.v, printed, SMALLEST, task=lud == "task")
    given = (model, kept, data, rows, counts)
    return bound_sgd(*given, lr=recipe.lr, momentum=recipe.momentum, clip=recipe.clip, pull=pull, bound=bound)
