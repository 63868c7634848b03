"""What Centaur and its baselines need of an experiment: the paper's network, and access points."""

from __future__ import annotations

from potluck.needs import ACCESS_POINT, Need, Situation, own_model

SHORTEST = 16  # steps of a window that six convolutions leave something of


def network(situation: Situation) -> str | None:
    """The ConvNet of section 5 for windows of a series, a compact network for images; else the default model."""
    shape = situation.shape
    if shape is None:
        return None
    if len(shape) == 2 and shape[0] >= SHORTEST:
        return "convnet"
    return "compact" if len(shape) == 3 and min(shape[1:]) >= SHORTEST else None


def _of_series(value: object) -> object:
    return lambda situation: value if network(situation) == "convnet" else None


# Eight channels instead of 64: a constrained device holds the encoder, and few rounds train it.
NETWORK = own_model(network, width=_of_series(8), norm=_of_series("batch"), dropout=_of_series(0.0))
# As in the released code: without drifting statistics, a random encoder that is never trained gives poor features.
DRIFTING = {"method.encoder.batch_norm": Need(_of_series("train"), unless=("model.name",))}
# A round of devices and one of access points make a pair: twenty pairs, where other methods have twenty rounds.
PAIRS_OF_ROUNDS = {
    "stop.rounds": Need(40, unless=("stop.virtual_seconds", "stop.accuracy", "stop.patience")),
}
PARTNERS = {
    "fleet.access_point": Need(
        ACCESS_POINT, without="no client has an access point, so nothing is handed over and the encoder is not trained"
    )
}
