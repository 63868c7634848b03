"""Convolution over the parameters of a model: a wide tensor becomes a narrow one, and the other way round.

FedConv (Shen et al., MobiSys 2024), sections 4.1 and 4.2, equations (1) and (3), Figure 5. A tensor is read as P planes
of outputs x inputs: a convolution has one for each position of its kernel, a linear layer one, a vector one of a single
row. Each plane has its own kernel, weight-normalised (w = g v / |v|, Salimans and Kingma, NeurIPS 2016), and a
constant c. The paper's two 1x1 convolutions with a residual are linear in the plane and collapse into these:
((1 + a) X + b) * w = X * ((1 + a) w) + b sum(w); `pre = "stack16"` keeps them for comparison, `collapsed` shows the
equality. A linear layer after a flatten has one plane for each position, as a convolution has; published is one plane
of all entries (`flatten = "entries"`). Kernels are plain named tensors: "conv1.weight/v", "/g", "/c".
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import Params
from potluck.methods.parts import checks
from potluck.methods.parts.submodels.widths import Plan, cut, reach, spaced

Start = Literal["delta", "random"]
Activation = Literal["identity", "mlr"]
Pre = Literal["none", "stack16"]
Fill = Literal["global", "zero"]
Under = Literal["global", "zero", "all"]  # all: below a change, too, which is put on the whole model
Flatten = Literal["positions", "entries"]
POSITIVE, NEGATIVE = 0.85, 0.001  # s_p and s_n, section 5.5
_STACK = 16  # channels between the two 1x1 convolutions, section 4.1 (1)
DIRECT = 1 << 18  # multiplications per plane above which the Fourier transform is quicker


class Lattice(NamedTuple):
    """How a kernel moves over a plane."""

    stride: int = 1
    padding: int = 0
    flatten: Flatten = "positions"

    def steps(self, whole: int, part: int) -> int:
        """The stride along an axis; a shorter one where so many outputs would not fit."""
        return reach(whole, part, self.stride)

    def pads(self, whole: int, part: int) -> int:
        return 0 if whole == part else self.padding

    def taps(self, whole: int, part: int) -> int:
        """The length of a kernel that makes `part` entries of `whole`."""
        return whole + 2 * self.pads(whole, part) - self.steps(whole, part) * (part - 1)


PLAIN = Lattice()


@dataclass(frozen=True)
class Kernels:
    """How kernels begin and are tuned."""

    init: Start = "delta"
    noise: float = 0.0  # on the delta; long kernels suffer from it
    activation: Literal["auto", "identity", "mlr"] = "auto"  # auto: identity with delta, mlr with random kernels
    pre: Pre = "none"
    normed: bool = True  # kernels by direction and length, w = g v / |v|; false: plain numbers, for comparison
    fill: Fill = "global"  # of dilated models, around the sub-model's block
    flatten: Flatten = "positions"  # planes of a linear layer after a flatten; entries: one for all, as published
    stride: int = 1  # of kernels; an untuned sub-model then has every so-manieth channel
    padding: int = 0  # zeros around the planes; it makes kernels longer
    sort_channels: bool = False  # of the global model by their norms, before compression
    per: Literal["client", "width"] = "client"  # whose dilation has kernels of its own; width: clients take turns
    batch: int = 8  # server rows per step
    lr: float = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"  # equation (2), or as released
    compress_epochs: int | None = None  # e_c; 5 with delta, 20 with random kernels unless given
    dilate_epochs: int | None = None  # e_t; the same
    look: int = 1  # epochs of tuning between two looks at the rows to choose by

    def __post_init__(self) -> None:
        checks.at_least(self, "noise", 0)
        checks.above(self, "lr", 0.0)
        for name in ("stride", "batch", "look"):
            checks.at_least(self, name, 1)
        checks.at_least(self, "padding", 0)
        if self.stride > 1 and self.flatten == "entries":
            raise BadInput(Code.SETTINGS_CLASH, f"stride: must be 1 with flatten = entries, got {self.stride}.")
        for name in ("compress_epochs", "dilate_epochs"):
            if getattr(self, name) is not None:
                checks.at_least(self, name, 0)

    @property
    def shape(self) -> Activation:
        """The activation behind a compressing kernel."""
        return self.activation if self.activation != "auto" else "identity" if self.init == "delta" else "mlr"

    @property
    def lattice(self) -> Lattice:
        return Lattice(self.stride, self.padding, self.flatten)

    @property
    def drawn(self) -> bool:
        """Whether two draws of first kernels differ."""
        return self.init == "random" or self.noise > 0.0

    def fresh(
        self, weights: Params, names: Container[str], plan: Plan, ratio: float, key: Tensor,
        activation: Activation = "identity", constants: bool = True,
    ) -> Params:  # fmt: skip
        """First kernels between a model and its sub-model, for the tensors named."""
        chosen = [name for name in weights if name in names]
        out = made(weights, chosen, plan, ratio, key, self.init, self.pre, self.noise, activation, self.lattice,
                   self.normed)  # fmt: skip
        return out if constants else {name: value for name, value in out.items() if not name.endswith("/c")}

    def rates(self, epochs: int | None) -> list[float]:
        """The learning rate of each epoch of tuning."""
        count = epochs if epochs is not None else 5 if self.init == "delta" else 20
        return cosine(count, self.lr) if self.schedule == "cosine" else [self.lr] * count


def cosine(epochs: int, high: float, low: float = 1e-5, half: int = 4) -> list[float]:
    """Equation (2): the learning rate of every epoch, counted from 0 in each phase."""
    return [low + 0.5 * (high - low) * (1.0 + math.cos(math.pi * epoch / half)) for epoch in range(epochs)]


def planes(value: Tensor, positions: int = 1) -> Tensor:
    """(P, outputs, inputs); of a linear layer after a flatten one for each of the positions."""
    if value.dim() == 1:
        return value[None, None]
    if value.dim() == 2:
        return value.reshape(value.shape[0], -1, positions).permute(2, 0, 1)
    return value.flatten(2).permute(2, 0, 1)


def unplaned(value: Tensor, like: Tensor) -> Tensor:
    """The planes as a tensor with as many axes, and as large a kernel, as `like`."""
    if like.dim() == 1:
        return value[0, 0]
    if like.dim() == 2:
        return value.permute(1, 2, 0).flatten(1)
    whole = value.permute(1, 2, 0)
    whole = whole.reshape(*whole.shape[:2], *like.shape[2:])
    # The order in memory that convolutions are quickest in.
    return whole.contiguous(memory_format=torch.channels_last) if whole.dim() == 4 and _alone() else whole


def _alone() -> bool:
    """Not inside torch.func's vmap or grad, which know no such order."""
    return torch._C._functorch.peek_interpreter_stack() is None


def made(
    weights: Params, names: Iterable[str], plan: Plan, ratio: float, key: Tensor,
    start: Start = "delta", pre: Pre = "none", noise: float = 0.0, activation: Activation = "identity",
    lattice: Lattice = PLAIN, normed: bool = True,
) -> Params:  # fmt: skip
    """First kernels between a model and its sub-model, for the tensors named.

    The last layer has no constant unless an activation follows: it would shift the scores of all classes alike, so that
    its gradient were rounding noise, which Adam blows up.
    """
    out: Params = {}
    shapes = plan.shapes(weights, ratio)
    for name in names:
        flat = weights[name].dim() == 2 and lattice.flatten == "positions"
        positions = plan.axes[name][1].per if flat else 1
        whole = planes(weights[name], positions).shape
        part = planes(torch.empty(shapes[name], device="meta"), positions).shape
        size = (whole[0], lattice.taps(whole[1], part[1]), lattice.taps(whole[2], part[2]))
        own = keys.fold(key, name)
        if start == "delta":
            v = noise * keys.normal(own, size)
            v[:, lattice.pads(whole[1], part[1]), lattice.pads(whole[2], part[2])] += 1.0
        else:
            v = (2.0 * keys.uniform(own, size) - 1.0) / (size[1] * size[2]) ** 0.5
        count = size[0]
        out[f"{name}/v"] = v
        if plan.axes[name][0].group is not None or activation != "identity":
            out[f"{name}/c"] = torch.zeros(count)
        if normed and size[1] * size[2] > 1:  # a single number has no direction: its gradient would be rounding noise
            out[f"{name}/g"] = v.flatten(1).norm(dim=1)
        if pre == "stack16":
            still = 0.0 if start == "delta" else 1.0  # with `delta` the stack begins as the identity
            draw = [2.0 * keys.uniform(keys.fold(own, part), (count, _STACK)) - 1.0 for part in ("a1", "b1", "a2")]
            out |= {f"{name}/a1": draw[0], f"{name}/b1": draw[1], f"{name}/a2": still * draw[2] / _STACK**0.5}
            out[f"{name}/b2"] = torch.zeros(count)
    return out


def kernel(kernels: Params, name: str) -> Tensor:
    """w = g v / |v| of every plane."""
    v = kernels[f"{name}/v"]
    if f"{name}/g" not in kernels:
        return v
    length = torch.linalg.vector_norm(v, dim=(1, 2)).clamp_min(1e-12)
    scale: Tensor = kernels[f"{name}/g"] / length
    return scale[:, None, None] * v


def collapsed(kernels: Params, name: str) -> tuple[Tensor, Tensor]:
    """The kernel and the constant that do what the stack and the kernel do together."""
    w = kernel(kernels, name)
    c = kernels.get(f"{name}/c", torch.zeros(len(w)))
    if f"{name}/a1" not in kernels:
        return w, c
    a = (kernels[f"{name}/a1"] * kernels[f"{name}/a2"]).sum(1)
    b = (kernels[f"{name}/b1"] * kernels[f"{name}/a2"]).sum(1) + kernels[f"{name}/b2"]
    return (1.0 + a)[:, None, None] * w, c + b * w.sum((1, 2))


def _stacked(x: Tensor, kernels: Params, name: str) -> Tensor:
    """The two 1x1 convolutions, one to sixteen channels and back, and the residual (Figure 5)."""
    if f"{name}/a1" not in kernels:
        return x
    a1, b1, a2 = (kernels[f"{name}/{part}"][:, :, None, None] for part in ("a1", "b1", "a2"))
    return x + (a2 * (a1 * x[:, None] + b1)).sum(1) + kernels[f"{name}/b2"][:, None, None]


def _shifted(x: Tensor, kernels: Params, name: str) -> Tensor:
    """Plus the constant of every plane, where there is one."""
    c = kernels.get(f"{name}/c")
    return x if c is None else x + c[:, None, None]


def correlate(x: Tensor, w: Tensor, stride: tuple[int, int] = (1, 1), padding: tuple[int, int] = (0, 0)) -> Tensor:
    """Each plane with its kernel: (P, o, i) and (P, a, b) give (P, o - a + 1, i - b + 1) at stride 1, unpadded."""
    rows, columns = x.shape[1] - w.shape[1] + 1, x.shape[2] - w.shape[2] + 1
    simple = stride == (1, 1) and padding == (0, 0)
    if not simple or rows * columns * w.shape[1] * w.shape[2] <= DIRECT:
        return F.conv2d(x[None], w[:, None], stride=stride, padding=padding, groups=x.shape[0])[0]
    size = (x.shape[1], x.shape[2])
    return _back(_waves(x, size) * _waves(w, size).conj(), size)[:, :rows, :columns].to(x.dtype)


def spread(x: Tensor, w: Tensor, stride: tuple[int, int] = (1, 1), padding: tuple[int, int] = (0, 0)) -> Tensor:
    """The transpose of `correlate`: (P, o', i') and (P, a, b) give (P, o' + a - 1, i' + b - 1)."""
    simple = stride == (1, 1) and padding == (0, 0)
    if not simple or x.shape[1] * x.shape[2] * w.shape[1] * w.shape[2] <= DIRECT:
        return F.conv_transpose2d(x[None], w[:, None], stride=stride, padding=padding, groups=x.shape[0])[0]
    size = (x.shape[1] + w.shape[1] - 1, x.shape[2] + w.shape[2] - 1)
    return _back(_waves(x, size) * _waves(w, size), size).to(x.dtype)


def _waves(x: Tensor, size: tuple[int, int]) -> Tensor:
    """In double precision, so that a delta gives back what it is put upon, to the last bit."""
    waves: Tensor = torch.fft.rfft2(x.double(), s=size)
    return waves


def _back(waves: Tensor, size: tuple[int, int]) -> Tensor:
    whole: Tensor = torch.fft.irfft2(waves, s=size)
    return whole


def mlr(x: Tensor) -> Tensor:
    """The modified leaky ReLU of Figure 6 (b)."""
    return torch.where(x >= 0, POSITIVE * x, NEGATIVE * x)


def compress(
    weights: Params, kernels: Params, plan: Plan, ratio: float, activation: Activation = "identity",
    lattice: Lattice = PLAIN,
) -> Params:  # fmt: skip
    """The sub-model: MLR(X * w + c), applied once; statistics of norms are those of the channels of a delta."""
    out = cut(weights, plan, spaced(plan, ratio, lattice.stride))
    for name, value in weights.items():
        if f"{name}/v" in kernels:
            w = kernel(kernels, name)
            positions = len(w) if value.dim() == 2 else 1
            x, part = planes(value, positions), planes(out[name], positions).shape
            moves, pads = _moves(x.shape, part, lattice)
            y = _shifted(correlate(_stacked(x, kernels, name), w, moves, pads), kernels, name)
            out[name] = unplaned(mlr(y) if activation == "mlr" else y, value)
    return out


def dilate(sub: Params, kernels: Params, weights: Params, fill: Under = "global", lattice: Lattice = PLAIN) -> Params:
    """The sub-model at full width; around its own entries it is filled with the global model's, or with zeros.

    With `all`, `sub` is the change of a sub-model, and the whole model is put below it: no change, no other model.
    """
    out = {}
    for name, value in weights.items():
        if fill == "all" and name not in sub:
            out[name] = value
            continue
        part, tuned = sub[name], f"{name}/v" in kernels
        if not value.dim():  # a counter
            out[name] = value + part if fill == "all" else part
            continue
        positions = len(kernels[f"{name}/v"]) if tuned and value.dim() == 2 else 1
        whole, small = planes(value, positions), planes(part, positions)
        moves, pads = _moves(whole.shape, small.shape, lattice)
        if not tuned:  # statistics
            rows, columns = (_before(size, move) for size, move in zip(whole.shape[1:], moves, strict=True))
            near = small[:, rows.clamp_max(small.shape[1] - 1)][:, :, columns.clamp_max(small.shape[2] - 1)]
            near = _after(name, whole, near) if fill == "all" else near
            out[name] = unplaned(torch.where(_places(whole, small.shape, moves), near, whole), value)
            continue
        big = _shifted(spread(_stacked(small, kernels, name), kernel(kernels, name), moves, pads), kernels, name)
        if fill == "global" and whole.shape != small.shape:
            big = big + torch.where(_places(whole, small.shape, moves), 0.0, whole)
        out[name] = unplaned(big + whole if fill == "all" else big, value)
    return out


def _after(name: str, value: Tensor, change: Tensor) -> Tensor:
    """Statistics of a norm after a change; a variance at least halves, for it was changed at another scale."""
    after = value + change
    return torch.maximum(after, value / 2) if name.endswith("running_var") else after


def _moves(whole: Sequence[int], part: Sequence[int], lattice: Lattice) -> tuple[tuple[int, int], tuple[int, int]]:
    """Stride and padding along both axes of a plane."""
    sizes = list(zip(whole[1:], part[1:], strict=True))
    (a, b), (c, d) = ([lattice.steps(*pair) for pair in sizes], [lattice.pads(*pair) for pair in sizes])
    return (a, b), (c, d)


def _before(size: int, move: int) -> Tensor:
    return torch.arange(size) // move


def _places(whole: Tensor, part: Sequence[int], moves: tuple[int, int]) -> Tensor:
    """Where the entries of the part are on the planes of the whole."""
    rows, columns = (torch.zeros(size, dtype=torch.bool) for size in whole.shape[1:])
    rows[torch.arange(part[1]) * moves[0]] = True
    columns[torch.arange(part[2]) * moves[1]] = True
    return (rows[:, None] & columns).expand(whole.shape)


def work(shapes: Mapping[str, tuple[int, ...]], kernels: Params) -> float:
    """MACs of one compression to these shapes, or of one dilation from them, as sums of products.

    Fourier transforms take fewer.
    """
    total = 0.0
    for name, shape in shapes.items():
        if f"{name}/v" in kernels:
            v = kernels[f"{name}/v"]
            outputs = math.prod(shape[:2]) / (len(v) if len(shape) == 2 else 1)  # of one plane
            total += outputs * v.numel()
    return total
