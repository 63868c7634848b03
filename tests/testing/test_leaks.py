"""The search for one client's numbers in envelopes to the others finds a leak that is put there by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from potluck.methods import clusterfl
from potluck.testing import Trial, leaks, loopback


def test_a_state_with_the_models_of_all_clients_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a client could ask for any field of ClusterFL's state, and was sent the table of all models."""

    def careless(state: Any, client: str) -> dict[str, Any]:
        return {"trials": (), "owed": (), "table": state.table}

    monkeypatch.setattr(clusterfl, "visible", careless)
    experiment = Trial("clusterfl").experiment(stop={"rounds": 3})
    found = leaks.leaks(experiment, tmp_path, loopback)
    assert found
    assert "has numbers of" in found[0]
