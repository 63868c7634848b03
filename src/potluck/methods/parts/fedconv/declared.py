"""What FedConv declares of its settings: which matter most, what to tune, what they need, which names are old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potluck.errors import BadInput, Code
from potluck.fleet import Local
from potluck.methods.parts.submodels.fitting import FITTED
from potluck.methods.parts.submodels.kernels import Kernels
from potluck.methods.parts.submodels.mixing import Mix
from potluck.methods.parts.submodels.train import check_layers
from potluck.methods.parts.submodels.widths import plan_of, sorted_channels
from potluck.needs import SERVER_ROWS, SERVER_SHARE, Need
from potluck.spaces import Range, Space

if TYPE_CHECKING:
    from potluck.methods.fedconv import Config

KEY_SETTINGS = ("sizes.widths", "sizes.assign", "kernels.compress_epochs", "mix.agg", "server.pretrain_epochs")
SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True), "mix.lr": Range(1e-4, 1e-2, log=True)}
NEEDS = {
    "server.share": Need(
        SERVER_SHARE, without="the server has no rows, so sub-models are leading slices and the mean is plain"
    ),
    **FITTED,
}
USES = (SERVER_ROWS,)
PRETRAINS = "server.pretrain_epochs"
OLD_NAMES = {
    "e_p": "server.pretrain_epochs",
    "e_c": "kernels.compress_epochs",
    "e_t": "kernels.dilate_epochs",
    "e_a": "mix.epochs",
    "v_lr": "mix.lr",
    "kernel_init": "kernels.init",
    "kernel_noise": "kernels.noise",
    "kernel_lr": "kernels.lr",
}


def check_forms(kernels: Kernels, mix: Mix) -> None:
    """Raise BadInput for forms of dilation and mean that do not go together."""
    if kernels.fill == "zero" and mix.on == "changes":
        raise BadInput(
            Code.SETTINGS_CLASH,
            "kernels.fill: must be global with mix.on = changes, got zero: a zero would be a change of its own.",
        )


def check(cfg: Config, home: Local) -> None:
    """Raise BadInput, before anything runs, for a model or layers that the settings do not fit."""
    plan = plan_of(home.model)
    check_layers("keep", cfg.keep, home.model)
    check_layers("moving", cfg.moving, home.model)
    if cfg.kernels.sort_channels:
        sorted_channels(home.model.init(0), plan)
