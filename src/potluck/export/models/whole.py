"""A client's model from raw samples to scores: the layout, the scale of bytes, the standardisation, the network."""

from __future__ import annotations

import torch

from potluck.export.models.graph import Graph
from potluck.export.models.networks import add_network
from potluck.runs.results import Personal
from potluck.tasks import Anomaly, MultiLabel, Ordinal, Regression


def raw_shape(one: Personal) -> tuple[int, ...]:
    """One sample in the layout of the dataset."""
    shape = one.model.shape
    if one.about["kind"] == "image":
        if one.about["channels_last"]:
            return (shape[1], shape[2], shape[0])
        return shape[1:] if shape[0] == 1 else shape
    return shape


def whole_graph(one: Personal) -> Graph:
    """The operations of `Personal.scores`: what the task makes of the network's answers comes last."""
    graph = Graph(raw_shape(one))
    image, x = one.about["kind"] == "image", 0
    if one.about["channels_last"]:
        x = graph.permute(x, (2, 0, 1))
    x = graph.reshape(x, one.model.shape)
    if one.about["bytes"]:
        x = graph.add("divide", (x,), graph.shape(x), by=255.0)
    if one.scale is not None:
        mean, factor = one.scale
        axis = 0 if image else len(graph.shape(x)) - 1
        x = graph.add("standardise", (x,), graph.shape(x), {"mean": mean, "factor": factor}, axis=axis)
    _add_answer(graph, x, add_network(graph, x, one.model, one.weights), one)
    return graph


def _add_answer(graph: Graph, sample: int, out: int, one: Personal) -> None:
    """The outputs as people read them (`Task.scores`)."""
    task = one.model.task
    match task:
        case Regression():
            scale = {"scale": torch.tensor(task.spread), "shift": torch.tensor(task.centre)}
            graph.add("affine", (out,), graph.shape(out), scale)
        case Ordinal() | MultiLabel():
            graph.act(out, "sigmoid")
        case Anomaly():
            graph.add("apart", (out, graph.flat(sample)), (1,))
        case _ if one.model.loss == "cross_entropy":
            graph.add("softmax", (out,), graph.shape(out))
