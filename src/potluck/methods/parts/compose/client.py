"""The client's side of a composed method: one program for all local parts, shares and shapes, whole or in legs."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as nn_f
from torch import Tensor

from potluck import keys
from potluck.fleet import Data, Done, Local, Params
from potluck.learn import Loss, Pull, batches, clipped, fit, mean_loss, row_losses, sgd, take
from potluck.methods.parts import held
from potluck.methods.parts.clusterfl import tuning
from potluck.methods.parts.clusterfl.validation import training_loss
from potluck.methods.parts.compose.messages import Bind, Carry, Change, Kept, Note, Towards, Train, Trained, Turned
from potluck.methods.parts.correction import prox
from potluck.methods.parts.echopfl.feedback import counted, judged, nothing
from potluck.methods.parts.echopfl.legs import portion, rebased
from potluck.methods.parts.fedcfc.bind import Terms, bound_gradients
from potluck.methods.parts.selection import select
from potluck.models import Model


def train(task: Train, local: Local) -> Done:
    """Begin with what was sent and what is the client's own, train, send back what is shared."""
    begin, group = begun(task, local)
    if task.legs.of:
        return leg(task, local, begin)
    data = replace(local.data, weight=kept_rows(task, local, begin))
    own: Kept | None = local.mine
    weights, steps = trained(task, local, begin, data, own.steps if own else torch.zeros(()))
    loss = training_loss(local, weights) if task.towards.on else torch.zeros(0)
    sent = {name: value for name, value in weights.items() if name not in task.private}
    if task.changes:
        sent = {name: value - begin[name] for name, value in sent.items()}
    feedback = torch.zeros(0)
    if task.legs.counted:
        counts = counted(nothing(local.model.classes), local.model, begin, local.data)
        feedback = judged(counts, task.legs.feedback)
    kind = Change if task.changes or task.choices else Trained
    update = kind(sent, task.version, data.weight.sum(), feedback, loss, group)
    return Done(update, mine=to_keep(task, weights, steps), own=None if task.keeps else weights)


def begun(task: Train, local: Local) -> tuple[Params, Tensor]:
    """The model to begin with, and the group that the client chose where it may choose."""
    own: Params = local.mine.weights if local.mine else {}
    sent = {name: value[0] for name, value in task.weights.items()} if task.choices else task.weights
    mine = {name: held.fitted(own[name], sent.get(name, own[name])) for name in task.private if name in own}
    order = [name for name, _ in local.model.module.named_parameters()]

    def ordered(weights: Params) -> Params:
        names = [name for name in order if name in weights]
        return {name: weights[name] for name in [*names, *(name for name in weights if name not in names)]}

    if not task.choices:
        return ordered({**own, **task.weights, **mine}), torch.zeros(0)
    data, losses = local.data, []
    for j in range(task.choices):
        weights = {**{name: value[j] for name, value in task.weights.items()}, **mine}
        losses.append((row_losses(local.model, weights, data) * data.weight).sum())
    best = torch.stack(losses).argmin()
    return ordered({**{name: value[best] for name, value in task.weights.items()}, **mine}), best


def kept_rows(task: Train | Bind, local: Local, weights: Params) -> Tensor:
    """0/1: the samples to train on. Loss selection hands nothing over here, so D_M stays and is trained on."""
    rule, data = task.how.rule, local.data
    if rule is None:
        return data.weight
    losses = row_losses(local.model, weights, data)
    chosen = select(rule, losses, data.weight, local.key)
    keep = chosen.keep + chosen.send
    return torch.where(keep.sum() > 0, keep, data.weight)


def trained(task: Train, local: Local, begin: Params, data: Data, steps: Tensor) -> tuple[Params, Tensor]:
    """The model after local training by the chosen part, and the local steps so far."""
    model, how, recipe = local.model, task.how, task.recipe
    if task.towards.on:
        return pulled(task, local, begin, data, steps)
    if how.part == "head":
        own = frozenset(task.private) & model.trainable
        first = replace(recipe, epochs=how.head_epochs)
        begin = fit(model, begin, data, first, key=keys.fold(local.key, "head"), only=own)
        return fit(model, begin, data, recipe, key=local.key, only=model.trainable - own), steps
    pull = prox(how.mu, begin) if how.part == "proximal" else None
    loss = distilled(model, begin, how.weight, how.tau) if how.part == "distil" else None
    return fit(model, begin, data, recipe, key=local.key, pull=pull, loss=loss), steps


def distilled(model: Model, sent: Params, weight: float, tau: float) -> Loss:
    """(1 - weight) of the loss, and weight tau^2 KL of the answers of the model that was sent from one's own."""

    def loss(weights: Params, batch: Data, key: Tensor) -> tuple[Tensor, Params]:
        logits, buffers = model.train_logits(
            weights, batch.x, weight=batch.weight, key=key, t=batch.t, length=batch.length
        )
        with torch.no_grad():
            said = model.logits(sent, batch.x, t=batch.t, length=batch.length)
        p, q = (nn_f.log_softmax(model.task.opinion(one) / tau, -1) for one in (said, logits))
        apart = (p.exp() * (p - q)).sum(-1) * tau**2
        both = (1.0 - weight) * model.losses(logits, batch.y) + weight * apart
        return (both * batch.weight).sum() / batch.weight.sum().clamp_min(1.0), buffers

    return loss


def pulled(task: Train, local: Local, begin: Params, data: Data, before: Tensor) -> tuple[Params, Tensor]:
    """ClusterFL's eq. (6) by SGD, on the layers that are shared: see `methods/clusterfl.py`, `descend`."""
    recipe, towards = task.recipe, task.towards
    lr = recipe.lr * towards.lr_decay ** (before / 100.0)
    steps = recipe.epochs * torch.ceil(data.weight.sum() / recipe.batch)
    pull = towards_pull(towards, begin, lr / (1.0 - recipe.momentum), steps)
    weights = sgd(
        local.model, begin, data, key=local.key, lr=lr, epochs=recipe.epochs, batch=recipe.batch,
        momentum=recipe.momentum, clip=recipe.clip, pull=pull,
    )  # fmt: skip
    return weights, before + steps


def towards_pull(towards: Towards, begin: Params, lr: Tensor, steps: Tensor) -> Pull | None:
    unit = tuning.strength(towards.coupling, lr, steps) if towards.coupling else 1.0
    if not towards.alpha and not towards.z:
        return None
    # A layer of one's own has no z: there the pull is to where training began.
    own = {name: 2.0 * towards.alpha * value for name, value in begin.items() if name not in towards.z}
    shift = {**towards.z, **own} if towards.z else None
    return Pull(unit * 2.0 * towards.alpha, shift, times=-unit)


def to_keep(task: Train, weights: Params, steps: Tensor) -> Kept | None:
    if task.keeps:
        return Kept(weights, steps)
    private = {name: weights[name] for name in task.private}
    return Kept(private, steps) if private else None


def leg(task: Train, local: Local, begin: Params) -> Done:
    """One leg (EchoPFL, section 7): read the newest note, train on a share of an epoch, count for the feedback."""
    carry: Carry | None = local.carry
    model, legs = local.model, task.legs
    if carry is None:
        keep = kept_rows(task, local, begin) if task.how.rule else torch.zeros(0)
        first = torch.tensor(0)
        carry = Carry(begin, begin, task.version, first, local.key, nothing(model.classes), keep, task.last_layer)
    elif local.mail is not None and legs.on_arrival != "next" and _fits(local.mail, carry):
        carry = moved(carry, local.mail, restart=legs.on_arrival == "restart")
    data = local.data
    if task.how.rule:  # the rows may be padded to another length than in the first leg
        data = replace(data, weight=held.fitted(carry.keep, torch.zeros_like(data.weight)))
    epoch = torch.div(carry.leg, legs.of, rounding_mode="floor")
    rows = portion(data.weight, carry.leg - epoch * legs.of, legs.of, keys.fold(carry.key, epoch))
    only = model.last_layers() if carry.last_layer else None
    pull = prox(task.how.mu, begin) if task.how.part == "proximal" else None
    loss = distilled(model, begin, task.how.weight, task.how.tau) if task.how.part == "distil" else None
    weights = fit(model, carry.weights, data, task.recipe, key=local.key, only=only, among=rows, pull=pull, loss=loss)
    asked = portion(local.data.weight, carry.leg, legs.counted)
    counts = counted(carry.counts, model, begin, take(local.data, asked.places, asked.weight))
    sent = {name: value for name, value in weights.items() if name not in task.private}
    if task.changes:
        sent = {name: value - carry.base[name] for name, value in sent.items()}
    kind = Change if task.changes else Trained
    update = kind(sent, carry.version, data.weight.sum(), judged(counts, legs.feedback))
    after = replace(carry, weights=weights, leg=carry.leg + 1, counts=counts)
    keeps = to_keep(task, weights, torch.zeros(()))
    return Done(update, mine=keeps, carry=after, own=None if task.keeps else weights)


def _fits(note: Note, carry: Carry) -> bool:
    """Whether a note is of the width at work: a client's width may have changed while the note was on its way."""
    return all(value.shape == carry.weights[name].shape for name, value in note.weights.items())


def moved(carry: Carry, note: Note, restart: bool) -> Carry:
    """The carry rebased on a note, in the layers that the note has."""
    weights, base = ({name: one[name] for name in note.weights} for one in (carry.weights, carry.base))
    after: Carry = rebased(replace(carry, weights=weights, base=base), note, restart)
    return replace(after, weights={**carry.weights, **after.weights}, base={**carry.base, **after.base})


def bind(task: Bind, local: Local) -> Done:
    """FedCFC, section 4.3: train one's own model, its last layer bound to the direction of the others' gradients.

    Terms R_d and R_m as in `parts/fedcfc/bind.py`; R_a is of continuous-time heads and has no place here.
    """
    own: Params = local.mine.weights if local.mine else {}
    weights, model, recipe = {**task.weights, **own}, local.model, task.recipe
    data = replace(local.data, weight=kept_rows(task, local, weights))
    moving = [name for name in weights if name in model.trainable]
    terms = Terms(task.lambda_d, task.lambda_m, 0.0)
    rows, counts = batches(data, recipe.batch, recipe.epochs, local.key)
    total, steps = torch.zeros_like(weights[task.layer]), torch.zeros(())
    for step in range(rows.shape[0]):
        batch = take(data, rows[step], counts[step])

        def values(w: Params, batch: Data = batch, now: Params = weights) -> tuple[Tensor, Tensor]:
            loss = mean_loss(model, {**now, **w}, batch, local.key)[0]
            return loss, loss * 0.0

        at = {name: weights[name] for name in moving}
        gradient, _, _ = bound_gradients(
            values, at, frozenset({task.layer}), task.layer, terms, task.direction, task.length
        )
        if recipe.clip:
            gradient = dict(zip(gradient, clipped(list(gradient.values()), recipe.clip), strict=True))
        real = (counts[step].sum() > 0).float()  # an all-padding batch must not move anything
        total, steps = total + real * gradient[task.layer], steps + real
        weights = {**weights, **{name: value - recipe.lr * real * gradient[name] for name, value in at.items()}}
    mean: Tensor = total.flatten() / steps.clamp_min(1.0)
    return Done(Turned(mean, data.weight.sum()), mine=Kept(weights, steps))
