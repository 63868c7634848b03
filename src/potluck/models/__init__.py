"""Models by name or import path, as pure functions of their weights: for one client or a stack of them."""

from potluck.models.catalogue import ModelInfo, build, catalogue, default_for, table
from potluck.models.layers import BatchNorm, Dropout, GroupNorm, LayerNorm
from potluck.models.model import Layer, Model, Params
from potluck.models.recurrent import Recurrent

__all__ = [
    "BatchNorm",
    "Dropout",
    "GroupNorm",
    "Layer",
    "LayerNorm",
    "Model",
    "ModelInfo",
    "Params",
    "Recurrent",
    "build",
    "catalogue",
    "default_for",
    "table",
]
