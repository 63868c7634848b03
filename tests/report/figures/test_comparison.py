"""The arithmetic of a comparison, on numbers one can check by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from helpers.made_runs import flat, made_run
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from potluck.errors import BadInput
from potluck.report import Comparison, Row, Spread, compare
from potluck.report.figures.comparison import difference, spread
from potluck.report.figures.latex import escaped, latex


def row_of(comparison: Comparison, method: str) -> Row:
    return next(row for row in comparison.rows if row.method == method)


def means(parent: Path, **methods: list[float]) -> Comparison:
    """One run per method and seed that ends with the accuracy given."""
    return compare([
        made_run(parent, method, seed, flat(value))
        for method, values in methods.items()
        for seed, value in enumerate(values)
    ])  # fmt: skip


def test_figures_of_one_run(tmp_path: Path) -> None:
    run = made_run(tmp_path, rounds=[{"a": 0.2, "b": 0.4}, {"a": 0.5, "b": 0.7}])
    (row,) = compare([run]).rows
    assert row.accuracy == Spread(pytest.approx(0.6), None)
    assert row.worst_client == Spread(0.5, None)
    assert (row.bytes_up, row.bytes_down) == (Spread(200, None), Spread(400, None))
    assert (row.virtual_seconds, row.joules, row.macs) == (Spread(20, None), Spread(10, None), Spread(2000, None))
    assert row.idle_joules == Spread(3, None)
    assert row.all_joules == Spread(13, None)
    assert row.idle_share == Spread(3 / 13, None)  # a run without the split: waiting alone
    assert row.seeds == [0]
    assert row.finished
    assert not row.best  # nothing to be better than
    assert row.difference is None


def test_mean_and_standard_deviation_over_seeds(tmp_path: Path) -> None:
    (row,) = means(tmp_path, fedavg=[0.5, 0.7, 0.9]).rows
    assert row.accuracy is not None
    assert row.accuracy.mean == pytest.approx(0.7)
    assert row.accuracy.std == pytest.approx(0.2)  # sqrt((0.04 + 0 + 0.04) / 2)


def test_the_best_comes_first_and_the_others_are_held_against_it(tmp_path: Path) -> None:
    found = means(tmp_path, local=[0.5, 0.5, 0.5], fedavg=[0.6, 0.7, 0.8], ftl=[0.7, 0.75, 0.8])
    assert [row.method for row in found.rows] == ["ftl", "fedavg", "local"]
    assert found.best == "ftl"
    assert [row.best for row in found.rows] == [True, False, False]
    gap = row_of(found, "fedavg").difference
    assert gap is not None
    assert gap.seeds == [0, 1, 2]
    assert gap.mean == pytest.approx(-0.05)  # of -0.10, -0.05 and 0
    # By hand: standard deviation 0.05, t(0.975, 2) = 4.3027, half the interval 4.3027 * 0.05 / sqrt(3) = 0.1242.
    assert gap.low == pytest.approx(-0.1742, abs=1e-4)
    assert gap.high == pytest.approx(0.0742, abs=1e-4)
    assert gap.verdict == "not larger than the noise"
    clear = row_of(found, "local").difference
    assert clear is not None
    assert clear.verdict == "larger than the noise"  # -0.25 ± 0.1242


def test_two_seeds_are_too_few_to_tell(tmp_path: Path) -> None:
    gap = row_of(means(tmp_path, fedavg=[0.5, 0.6], ftl=[0.8, 0.9]), "fedavg").difference
    assert gap is not None
    assert gap.mean == pytest.approx(-0.3)
    assert (gap.low, gap.high) == (None, None)
    assert gap.verdict == "too few seeds to tell"


def test_equal_runs_are_not_apart(tmp_path: Path) -> None:
    gap = row_of(means(tmp_path, fedavg=[0.5, 0.6, 0.7], fedprox=[0.5, 0.6, 0.7]), "fedprox").difference
    assert gap is not None
    assert (gap.mean, gap.low, gap.high) == (0, 0, 0)
    assert gap.verdict == "not larger than the noise"


def test_only_common_seeds_are_paired(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "fedavg", seed, flat(0.5)) for seed in (0, 1, 2)]
    runs += [made_run(tmp_path, "ftl", seed, flat(0.9)) for seed in (2, 3)]
    found = compare(runs)
    gap = row_of(found, "fedavg").difference
    assert gap is not None
    assert gap.seeds == [2]
    assert any("did not finish the same seeds" in note for note in found.notes)


def test_no_common_seed_leaves_no_difference(tmp_path: Path) -> None:
    found = compare([made_run(tmp_path, "fedavg", 0, flat(0.5)), made_run(tmp_path, "ftl", 1, flat(0.9))])
    gap = row_of(found, "fedavg").difference
    assert gap is not None
    assert gap.mean is None
    assert gap.verdict == "too few seeds to tell"
    assert "no seed in common" in found.sentence


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=8))
def test_the_interval_is_that_of_the_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    mine, best = (dict(enumerate(column)) for column in zip(*pairs, strict=True))
    gaps = [a - b for a, b in pairs]
    if max(gaps) - min(gaps) < 1e-6:
        return  # SciPy warns of lost precision where all gaps are the same
    found = difference("best", mine, best)
    expected = stats.ttest_rel(list(mine.values()), list(best.values())).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_spread_of_nothing_and_of_one() -> None:
    assert spread([]) is None
    assert spread([0.5]) == Spread(0.5, None)


def test_refused_lost_and_unfit_are_counted_apart(tmp_path: Path) -> None:
    tasks = [
        ("a", "accepted", ""),
        ("a", "refused", "numbers that are not finite"),
        ("a", "repeat", "answered before"),
        ("a", "lost", "went away while it worked"),
        ("b", "lost", "does not fit: too small"),
    ]
    (row,) = compare([made_run(tmp_path, tasks=tasks, unfit={"b": "does not fit: too small"})]).rows
    assert (row.refused, row.lost, row.unfit) == (Spread(2, None), Spread(1, None), Spread(1, None))
    assert row.able_accuracy == Spread(0.5, None)  # of client a alone


def test_an_interrupted_run_is_told_and_never_the_best(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "fedavg", 0, flat(0.5), settings={"stop.rounds": 4})]
    runs += [made_run(tmp_path, "ftl", 0, flat(0.8, 0.9), settings={"stop.rounds": 4}, ended="interrupted")]
    found = compare(runs)
    late = row_of(found, "ftl")
    assert found.best == "fedavg"
    assert [row.method for row in found.rows] == ["fedavg", "ftl"]
    assert not late.finished
    assert late.unfinished == [0]
    assert late.accuracy == Spread(0.9, None)
    assert late.difference is None
    assert any("2 of 4 rounds done" in note and "interrupted" in note for note in found.notes)
    assert "only fedavg has finished" in found.sentence


def test_finished_seeds_count_and_unfinished_ones_do_not(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "fedavg", 0, flat(0.5)), made_run(tmp_path, "fedavg", 1, flat(0.9), ended=None)]
    (row,) = compare(runs).rows
    assert (row.seeds, row.unfinished) == ([0], [1])
    assert row.accuracy == Spread(0.5, None)


def test_a_stale_summary_is_not_believed(tmp_path: Path) -> None:
    run = made_run(tmp_path, rounds=flat(0.5, 0.6, 0.7), summary={"steps": 2})  # resumed after step 2, then killed
    found = compare([run])
    assert not found.rows[0].finished
    assert "after round 3" in found.notes[0]


def test_a_run_that_recorded_nothing(tmp_path: Path) -> None:
    found = compare([made_run(tmp_path, rounds=[], ended=None)])
    assert found.rows[0].accuracy is None
    assert "nothing has been evaluated yet" in found.sentence
    bare = made_run(tmp_path, "ftl", rounds=[], ended=None)
    (bare.folder / "run.db").unlink()
    assert compare([bare]).rows[0].accuracy is None
    (bare.folder / "run.db").write_bytes(b"")  # killed while the database was being made
    assert compare([bare]).rows[0].accuracy is None


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        (
            {"local": [0.9] * 3, "fedavg": [0.5, 0.6, 0.7]},
            "federated learning did not pay off: local training only (local)",
        ),
        ({"local": [0.5] * 3, "fedavg": [0.9] * 3}, "The other method is local, 40.0 points behind, which is larger"),
        (
            {"local": [0.5] * 3, "ftl": [0.8] * 3, "fedavg": [0.9] * 3},
            "Local training only (local) is 40.0 points behind",
        ),
        ({"centralised": [0.9] * 3, "fedavg": [0.8] * 3}, "fedavg comes closest, 10.0 points behind"),
        (
            {"centralised": [0.9] * 3, "local": [0.8] * 3, "ftl": [0.7] * 3},
            "no federated method beats local training only",
        ),
        ({"fedavg": [0.5, 0.6], "ftl": [0.6, 0.7]}, "too few seeds to tell whether that is more than noise"),
        ({"fedavg": [0.5, 0.7]}, "a mean accuracy of 60.0\N{NO-BREAK SPACE}% ± 14.1 (2 seeds) over 1 client"),
    ],
)
def test_the_outcome_in_plain_words(tmp_path: Path, methods: dict[str, list[float]], said: str) -> None:
    assert said in means(tmp_path, **methods).sentence


def test_a_lead_that_rests_on_clients_that_cannot_train_is_told(tmp_path: Path) -> None:
    runs = []
    for seed in range(3):
        unfit = {"b": "does not fit: too small"}
        runs.append(made_run(tmp_path, "local", seed, [{"a": 0.9, "b": 0.1}], unfit=unfit))
        runs.append(made_run(tmp_path, "fedavg", seed, [{"a": 0.8, "b": 0.8}], unfit=unfit))
    found = compare(runs)
    assert found.best == "fedavg"
    assert (
        "Among the clients that could train, however, local is 10.0 points ahead, which is larger than the noise"
        in found.sentence
    )


def test_one_sentence_says_which_differences_are_noise(tmp_path: Path) -> None:
    """Over three seeds 0.3 stands out, 0.05 does so only before Holm's correction, 0.01 not at all."""
    found = means(
        tmp_path, best=[0.90, 0.91, 0.92], far=[0.60, 0.611, 0.62], near=[0.85, 0.84, 0.88], noise=[0.93, 0.88, 0.89]
    )
    assert found.notes[0] == (
        "Against best, seed by seed: near and far are behind by more than the noise (95 % paired t interval over 3 "
        "seeds); noise is not; with Holm's correction for 3 comparisons, only far is."
    )


def test_with_two_seeds_only_a_changing_order_is_told(tmp_path: Path) -> None:
    found = means(tmp_path, best=[0.9, 0.7], local=[0.5, 0.8], fedavg=[0.4, 0.5])
    assert found.notes[0] == (
        "Two seeds are too few for an interval. Against best, local is ahead with one seed and not with the "
        "other, so that difference is noise; fedavg is behind with both seeds. Use three seeds or more to see how much "
        "of that is noise."
    )


def test_equal_with_two_seeds_is_not_ahead_with_one(tmp_path: Path) -> None:
    found = means(tmp_path, best=[1.0, 1.0], local=[1.0, 1.0], fedavg=[1.0, 0.5])
    assert found.notes[0].startswith(
        "Two seeds are too few for an interval. Against best, local is equal with both seeds; fedavg is equal with one "
        "seed and behind with the other."
    )


def test_one_seed_says_nothing_about_noise(tmp_path: Path) -> None:
    """Only the clients of that seed are compared."""
    (note,) = means(tmp_path, best=[0.9], local=[0.5]).notes
    assert note.startswith("Client by client, best instead of local: 1 of 1 client gain")


def test_namesakes_are_told_apart_by_their_settings(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, "fedprox", 0, name="x", settings={"method.mu": 0.1}),
        made_run(tmp_path, "fedprox", 0, name="y", settings={"method.mu": 1.0}),
    ]
    found = compare(runs)
    assert {row.method for row in found.rows} == {"fedprox (mu=0.1)", "fedprox (mu=1.0)"}
    assert {row.name for row in found.rows} == {"fedprox"}


def test_nested_settings_that_differ_are_named_by_their_dotted_name(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, "fedavg", name=f"lr-{lr}", settings={"method.recipe": {"lr": lr, "epochs": 2}})
        for lr in (0.1, 0.2)
    ]
    assert {row.method for row in compare(runs).rows} == {"fedavg (recipe.lr=0.1)", "fedavg (recipe.lr=0.2)"}


def test_settings_outside_the_method_that_differ_are_a_caution(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, method, name=method) for method in ("local", "fedavg")]
    runs.append(made_run(tmp_path, "ftl", settings={"fleet.devices": "boards"}))
    found = compare(runs)
    assert {row.method for row in found.rows} == {"local", "fedavg", "ftl (fleet.devices=boards)"}
    assert any("The runs also differ in fleet.devices" in note for note in found.notes)


def test_methods_that_remain_different_are_named(tmp_path: Path) -> None:
    some = means(tmp_path / "some", best=[0.90, 0.91, 0.92], far=[0.60, 0.611, 0.62], low=[0.50, 0.511, 0.52],
                 noise=[0.93, 0.88, 0.89])  # fmt: skip
    assert some.notes[0].endswith(
        "(95 % paired t interval over 3 seeds, also with Holm's correction for 3 comparisons); noise is not."
    )
    every = means(tmp_path / "every", best=[0.90, 0.91, 0.92], far=[0.60, 0.611, 0.62], low=[0.50, 0.511, 0.52])
    assert every.notes[0].endswith(
        "far and low are behind by more than the noise (95 % paired t interval over 3 seeds, also with Holm's "
        "correction for 2 comparisons)."
    )


def test_access_points_are_no_clients(tmp_path: Path) -> None:
    """A method that works in pairs has twice the fleet; the clients are as many as with the others."""
    runs = [made_run(tmp_path, method, unfit={"a": "does not fit"}) for method in ("local", "centaur")]
    summary = runs[1].folder / "summary.json"
    told = json.loads(summary.read_text())
    summary.write_text(json.dumps({**told, "clients": 2 * told["clients"]}))
    assert any(f"1 of {told['clients']} clients had too little memory" in note for note in compare(runs).notes)


def test_a_model_of_its_own_is_told_beside_the_table(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, method, name=method) for method in ("local", "fedavg")]
    runs.append(made_run(tmp_path, "ftl", settings={"model.name": "gru", "stop.rounds": 7}))
    found = compare(runs)
    assert {row.method for row in found.rows} == {"local", "fedavg", "ftl"}
    (note,) = [note for note in found.notes if "besides" in note]
    assert note == "Settings that differ besides the method: ftl with stop.rounds = 7, model.name = gru."


def test_of_two_runs_with_one_seed_one_counts(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, name="once", ended=None), made_run(tmp_path, name="again")]
    found = compare(runs)
    assert found.rows[0].seeds == [0]
    assert "again counts, once does not" in found.notes[0]


def test_runs_on_unlike_data_are_refused(tmp_path: Path) -> None:
    other = made_run(tmp_path, "ftl", settings={"data.source": "uci_har"})
    with pytest.raises(BadInput, match="must be on the same data to be compared, got made, uci_har"):
        compare([made_run(tmp_path), other])


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    from potluck.runs.results import Run

    with pytest.raises(BadInput, match="must be at least one, got none"):
        compare([])
    with pytest.raises(BadInput, match=r"is not a run: it has no experiment\.toml"):
        compare([Run(tmp_path)])
    broken = made_run(tmp_path)
    (broken.folder / "run.db").write_bytes(b"no database" * 100)
    with pytest.raises(BadInput, match="cannot be read"):
        compare([broken])
    mangled = made_run(tmp_path, "ftl")
    (mangled.folder / "summary.json").write_text("{")
    with pytest.raises(BadInput, match="not valid JSON"):
        compare([mangled])


def test_a_comparison_is_plain_values(tmp_path: Path) -> None:
    found = means(tmp_path, local=[0.5, 0.6, 0.7], fedavg=[0.6, 0.7, 0.9])
    told = json.loads(json.dumps(dataclasses.asdict(found), allow_nan=False))
    assert told["best"] == "fedavg"
    assert told["rows"][1]["difference"]["seeds"] == [0, 1, 2]


def test_energy_with_waiting_is_the_sum(tmp_path: Path) -> None:
    row = compare([made_run(tmp_path)]).rows[0]
    assert row.joules is not None
    assert row.idle_joules is not None
    assert row.all_joules == Spread(row.joules.mean + row.idle_joules.mean, None)


def test_the_table_for_a_paper(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, method, seed, flat(0.5 + seed / 10)) for method in ("fedavg", "ftl") for seed in (0, 1)]
    text = latex(compare(runs))
    assert r"\pm$ is the standard deviation over 2 seeds" in text
    assert r"55.0 $\pm$ 7.1" in text
    assert text.count(r"\\") == 3  # the head and two methods
    assert escaped("a_b & 5 %") == r"a\_b \& 5 \%"
