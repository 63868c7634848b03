import json

import pytest

from potluck.errors import BadInput
from potluck.runs.certificate import LIMITS, Certificate, read_certificate

RUN = {"network": "gru-32", "method": "fedavg", "task_time": 0.08, "makespan": 0.04, "nbytes": 0.001, "memory": 0.02}


def made(*runs):
    return Certificate({"processor": "x"}, [{"client": "s00"}], ["mlp-64"], list(runs))


def test_the_sentence_has_the_largest_errors_and_never_claims_hardware(tmp_path):
    certificate = made(RUN, {**RUN, "method": "echopfl", "task_time": 0.12})
    certificate.write(tmp_path / "c.json")
    found = read_certificate(tmp_path / "c.json")
    assert found.sentence == certificate.sentence
    assert "task time 12 %, makespan 4 %, bytes 0.1 %, peak memory 2 %" in found.sentence
    assert "echopfl, fedavg; gru-32" in found.sentence
    assert "no device was measured" in found.sentence
    assert "validated" not in (tmp_path / "c.json").read_text()


@pytest.mark.parametrize("figure", LIMITS)
def test_one_error_above_its_limit_is_enough(figure):
    assert made(RUN).kept
    assert not made(RUN, {**RUN, figure: LIMITS[figure] * 1.01}).kept


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 7}, "in format 1"),
        ({"runs": []}, "runs must be a list"),
        ({"runs": [{**RUN, "memory": -1}]}, "runs must be a list"),
        ({"runs": [{**RUN, "makespan": "small"}]}, "runs must be a list"),
        ({"machine": []}, "must have machine"),
    ],
)
def test_a_file_that_is_none_is_refused(change, message, tmp_path):
    path = tmp_path / "c.json"
    made(RUN).write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadInput, match=message):
        read_certificate(path)


def test_a_missing_file_names_the_setting(tmp_path):
    with pytest.raises(BadInput, match=r"fleet\.certificate"):
        read_certificate(tmp_path / "none.json")
