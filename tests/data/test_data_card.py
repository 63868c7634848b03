import io
import json
from dataclasses import replace

import numpy as np
from rich.console import Console

from potluck.data import card
from potluck.data.dataset import Dataset
from potluck.data.federate import federate
from potluck.data.made import made
from potluck.data.spec import PartitionSpec


def shown(federation) -> str:
    stream = io.StringIO()
    Console(file=stream, width=140).print(card.render(federation))
    return stream.getvalue()


def test_figures_are_plain_and_add_up():
    federation = federate(made(), PartitionSpec(valid_share=0.2))
    figures = federation.card()
    assert json.loads(json.dumps(figures)) == figures
    assert (figures["clients"], figures["rows"]) == (12, 720)
    counts = np.array(figures["counts"])
    assert counts.shape == (12, 4)
    assert counts.sum() == figures["sizes"]["total"] == federation.sizes.sum()
    assert figures["duplicates"] == {"rows": 0, "across_the_split": 0}
    assert figures["leakage"] is None


def test_many_clients_are_sampled():
    federation = federate(made(), PartitionSpec(kind="iid", clients=100_000, samples=10))
    figures = federation.card()
    assert len(figures["counted"]) == len(figures["counts"]) == 200
    assert figures["counted"][0] == "c00000"
    assert figures["counted"][-1] == "c99999"
    assert "30 of 100000 clients" in shown(federation)


def test_the_terminal_card_names_clients_classes_and_leaks():
    text = shown(federate(made(), PartitionSpec()))
    for word in ("made", "s01", "s12", "jump", "45", "leakage", "duplicates"):
        assert word in text


def test_pictures_are_written(tmp_path):
    for name, spec in {
        "few": PartitionSpec(valid_share=0.1),
        "many": PartitionSpec(kind="iid", clients=1000, samples=8),
    }.items():
        path = card.picture(federate(made(), spec), tmp_path / f"{name}.png")
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_card_counts_rows_without_a_label_and_heads_ranges_by_their_end():
    x = np.random.default_rng(0).normal(size=(40, 2))
    y, subject = np.array([0, 1, -1, -1] * 10), np.arange(40) % 2
    data = Dataset("d", x, y, 2, ("sit", "-4.865 to -1.131"), subject=subject[np.argsort(np.arange(40) % 20)])
    federation = federate(data, PartitionSpec())
    assert federation.card()["unlabelled_rows"] == 20
    text = shown(federation)
    assert "no label" in text
    assert "to -1.131" in text
    assert "classes" in text
    whole = replace(data, y=np.abs(y), target=x[:, 0].astype(np.float32), asks="regression")
    assert "target" in shown(federate(whole, PartitionSpec()))
