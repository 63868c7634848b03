"""The fleet in virtual time: what happens when, checked by hand, and who is told what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.fleets import fleet_of, made
from helpers.toys import DEVICE, PLAIN, TOY, WIDTH, Ask, Config, Note, ask, in_flight, moments, stacks, telling, unlike
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck import keys
from potluck.devices import Availability, Trace
from potluck.devices.draws import log_normal
from potluck.engines.local import Faults, LocalFleet
from potluck.fleet import Arrival, FleetEmpty, Lost
from potluck.wire.codec import decode, encode, size


def note(number: float) -> Note:
    return Note(torch.tensor(float(number)))


def rest(fleet: LocalFleet) -> list[Arrival | Lost]:
    """Everything still to come."""
    found = []
    while fleet.at_work:
        answer = fleet.receive()
        if answer is not None:
            found.append(answer)
    return found


def tasks_of(fleet: LocalFleet) -> list[Any]:
    return fleet.log.drain()[0]


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_tasks_time_is_download_and_training_and_upload() -> None:
    fleet = telling((4, 7))
    task = ask()
    fleet.send(task, to="c1")
    answer = fleet.receive()
    assert isinstance(answer, Arrival)
    (record,) = tasks_of(fleet)

    _, speed, *_ = keys.shares(keys.number(0, "c1", 0, "task"), 6)
    macs = 7 * 4 * WIDTH
    down = 0.25 + 8 * len(encode(task)) / 80_000
    train = macs / 1e6 * log_normal(speed, 0.1)
    up = 0.25 + 8 * (len(encode(answer.update)) + len(encode(task.value))) / 8_000  # with its hand-off
    assert record.macs == macs
    assert record.bytes_down == len(encode(task))
    assert record.bytes_up == len(encode(answer.update))
    assert (record.sent, record.started, record.trained) == pytest.approx((0.0, down, down + train))
    assert answer.at == fleet.now == record.arrived == pytest.approx(down + train + up)
    assert record.joules == pytest.approx(2.0 * train + (0.5 + 1.0) * up + (0.5 + 0.25) * down)


def test_legs_share_the_training_time_evenly_and_cost_as_much_each() -> None:
    one, four = telling(), telling()
    one.send(ask(), to="c0")
    four.send(ask(), to="c0", legs=4)
    (flight,) = in_flight(four)
    steps = [b - a for a, b in zip(flight.starts, [*flight.starts[1:], flight.trained], strict=True)]
    assert steps == pytest.approx([steps[0]] * 4)
    (short,), (long,) = (rest(fleet) for fleet in (one, four))
    assert tasks_of(four)[0].macs == 4 * tasks_of(one)[0].macs
    assert size(short.update) == size(long.update)


def test_a_trace_stretches_transfers_from_the_clients_own_phase() -> None:
    half = replace(PLAIN, name="half", trace=Trace((0.5,), 10.0))
    for link, factor in ((PLAIN, 1.0), (half, 2.0)):
        fleet = telling(gear=[(DEVICE, link)])
        fleet.send(ask(), to="c0")
        rest(fleet)
        (record,) = tasks_of(fleet)
        assert record.started == pytest.approx(0.25 + factor * 8 * record.bytes_down / 80_000)


def test_answers_come_in_the_order_of_arrival_and_the_clock_follows() -> None:
    fleet = telling((4, 4, 4, 4), gear=unlike([0.1, 10.0, 0.5, 2.0]))
    for client in fleet.idle:
        fleet.send(ask(), to=client)
    answers = []
    while fleet.at_work:
        answer = fleet.receive()
        assert isinstance(answer, Arrival)
        assert answer.at == fleet.now
        answers.append(answer)
    assert [answer.client for answer in answers] == ["c1", "c3", "c2", "c0"]
    assert [answer.task for answer in answers] == [1, 3, 2, 0]
    assert [answer.at for answer in answers] == sorted(answer.at for answer in answers)
    assert all(answer.sent == 0.0 for answer in answers)


def test_receive_until_stops_the_clock_there() -> None:
    fleet = telling()
    fleet.send(ask(), to="c0")
    arrives = min(flight.arrives for flight in in_flight(fleet))
    assert fleet.receive(until=arrives / 2) is None
    assert fleet.now == arrives / 2
    assert fleet.receive(until=arrives / 4) is None  # a moment that has passed
    assert fleet.now == arrives / 2
    assert isinstance(fleet.receive(until=arrives), Arrival)
    assert fleet.now == arrives
    assert fleet.receive(until=100.0) is None  # nothing in flight
    assert fleet.now == 100.0


def test_server_work_takes_time_and_what_arrived_meanwhile_arrived_when_it_did() -> None:
    fleet = telling()
    fleet.send(ask(), to="c0")
    arrives = min(flight.arrives for flight in in_flight(fleet))
    fleet.spend(1000.0)
    assert fleet.now == 1000.0
    answer = fleet.receive()
    assert isinstance(answer, Arrival)
    assert answer.at == arrives
    assert fleet.now == 1000.0
    with pytest.raises(ValueError, match="-1"):
        fleet.spend(-1.0)


def test_the_server_is_told_of_nothing_that_has_not_arrived() -> None:
    fleet = telling((4,) * 6, gear=unlike([1.0, 3.0, 0.2]))
    for client in fleet.idle:
        fleet.send(ask(), to=client)
    due = sorted(flight.arrives for flight in in_flight(fleet))
    for moment in due:
        assert fleet.receive(until=moment - 1e-9) is None
        assert isinstance(fleet.receive(until=moment), Arrival)


# -- who is asked ----------------------------------------------------------------------------------------------------


def test_a_client_at_work_is_not_idle_and_cannot_be_sent_more() -> None:
    fleet = telling()
    assert list(fleet.idle) == ["c0", "c1", "c2"]
    fleet.send(ask(), to="c1")
    assert list(fleet.idle) == ["c0", "c2"]
    assert fleet.at_work == 1
    with pytest.raises(RuntimeError, match=r"c1 still works on task 0: send to fleet\.idle only"):
        fleet.send(ask(), to="c1")
    rest(fleet)
    assert list(fleet.idle) == ["c0", "c1", "c2"]
    fleet.send(ask(), to="c1")


def test_a_task_has_at_least_one_leg() -> None:
    with pytest.raises(ValueError, match="legs: must be 1 or more, got 0"):
        telling().send(ask(), to="c0", legs=0)


def test_nobody_of_that_name() -> None:
    with pytest.raises(KeyError):
        telling().send(ask(), to="c9")


def test_gather_answers_in_the_order_asked() -> None:
    fleet = telling((4, 4, 4), gear=unlike([0.1, 1.0, 10.0]))
    answers = fleet.gather({"c2": ask(2), "c0": ask(0), "c1": ask(1)})
    assert [answer.client for answer in answers] == ["c2", "c0", "c1"]
    assert [float(answer.update.value) for answer in answers] == [2.0, 0.0, 1.0]
    assert fleet.now == max(answer.at for answer in answers)


def test_the_late_are_abandoned_never_delivered_and_idle_again_afterwards() -> None:
    fleet = telling((4, 4, 4), gear=unlike([0.01, 1.0, 10.0]))
    fleet.send(ask(), to="c1")  # to know how long it takes
    (first,) = rest(fleet)
    assert isinstance(first, Arrival)
    deadline = fleet.now + 2 * (first.at - first.sent)
    tasks_of(fleet)
    answers = fleet.gather({client: ask() for client in fleet.idle}, until=deadline)
    assert [answer.client for answer in answers] == ["c1", "c2"]
    assert fleet.now == deadline
    assert list(fleet.idle) == ["c1", "c2"]  # c0 is still at it

    _, executed = stacks(fleet)
    answers = fleet.gather({client: ask() for client in fleet.idle}, until=deadline + 1000)
    assert [answer.client for answer in answers] == ["c1", "c2"]
    assert fleet.receive(until=deadline + 1000) is None
    assert list(fleet.idle) == ["c0", "c1", "c2"]
    outcomes = {(task.client, task.outcome) for task in tasks_of(fleet)}
    assert outcomes == {("c0", "late"), ("c1", "accepted"), ("c2", "accepted")}
    assert stacks(fleet)[1] == executed + 2  # nobody computed what nobody waits for
    assert int(fleet.mine(0).tasks) == 0


def test_one_that_is_lost_after_its_round_was_over_is_not_reported() -> None:
    fleet = telling((4,), faults=Faults(dropout=1.0))
    assert fleet.gather({"c0": ask()}, until=1e-6) == []
    assert fleet.receive(until=1e6) is None
    assert [task.outcome for task in tasks_of(fleet)] == ["lost"]
    assert list(fleet.idle) == ["c0"]


def test_answers_to_earlier_tasks_wait_while_others_are_gathered() -> None:
    fleet = telling((4, 4, 4), gear=unlike([1.0, 0.1, 10.0]))
    fleet.send(ask(5), to="c0")
    fleet.send(ask(7), to="c2")
    (answer,) = fleet.gather({"c1": ask()})  # slower than both
    assert answer.client == "c1"
    moved, _ = fleet_of(TOY, Config(), made((4, 4, 4)), equipment=unlike([1.0, 0.1, 10.0]))
    moved.restore(decode(encode(fleet.snapshot()), TOY.classes))
    for same in (fleet, moved):
        later = [same.receive(until=same.now), same.receive(until=same.now)]
        assert [(a.client, float(a.update.value)) for a in later if isinstance(a, Arrival)] == [
            ("c2", 7.0),
            ("c0", 5.0),
        ]
        assert same.receive(until=same.now) is None


def test_gathering_from_nobody_lets_time_pass() -> None:
    fleet = telling((4, 4), joins=moments(0.0, 7.0))
    assert fleet.gather({}, until=3.0) == []
    assert fleet.now == 3.0
    assert fleet.gather({}) == []
    assert fleet.now == 7.0


# -- lazy execution --------------------------------------------------------------------------------------------------


def test_work_piles_up_and_is_done_as_one_stack() -> None:
    fleet = telling((4,) * 8, gear=unlike([1.0, 2.0, 4.0, 8.0]))
    for client in fleet.idle:
        fleet.send(ask(), to=client)
    assert stacks(fleet) == (0, 0)
    fleet.receive()
    assert stacks(fleet) == (1, 8)
    rest(fleet)
    assert stacks(fleet) == (1, 8)


@pytest.mark.parametrize("legs", [1, 3])
def test_an_asynchronous_loop_trains_in_stacks(legs: int) -> None:
    speeds = [0.5 + 0.1 * i for i in range(20)]
    fleet, state = fleet_of(TOY, Config(legs=legs), made((6,) * 20), equipment=unlike(speeds))
    program = TOY.server(fleet, state, Config(legs=legs))
    for _ in range(100):
        state = next(program)
    assert state.steps == 100
    count, clients = stacks(fleet)
    assert clients / count > 2.0


def test_lazy_or_not_the_results_are_the_same() -> None:
    """An engine that computes every leg as soon as it may sees the same mail and gives the same answers."""

    def answers(eager: bool) -> list[tuple[str, float, list[float], float]]:
        fleet = telling((400,) * 5, gear=unlike([0.3, 1.0, 2.0, 0.7, 5.0]))
        for client in fleet.idle:
            fleet.send(ask(), to=client, legs=3)
        found, posted = [], 0
        while fleet.at_work:
            if eager:
                fleet._legs.wave(fleet._flights.values(), fleet.now)
            posted += 1
            fleet.post(note(posted), list(fleet.clients))
            answer = fleet.receive(until=fleet.now + 0.3)
            if isinstance(answer, Arrival):
                found.append((answer.client, answer.at, answer.update.heard.tolist(), float(answer.update.draw)))
        return found

    assert answers(eager=True) == answers(eager=False)
    assert sum(number > 0 for _, _, heard, _ in answers(eager=False) for number in heard) > 5


# -- legs and mail ---------------------------------------------------------------------------------------------------


def timed(legs: int = 3) -> tuple[LocalFleet, Any]:
    """A fleet with one task of so many legs under way, and its flight."""
    fleet = telling((200, 20))
    fleet.send(ask(), to="c0", legs=legs)
    (flight,) = in_flight(fleet)
    return fleet, flight


def heard(fleet: LocalFleet) -> list[float]:
    (answer,) = rest(fleet)
    assert isinstance(answer, Arrival)
    return answer.update.heard.tolist()


def test_a_note_is_read_by_the_first_leg_that_begins_after_it_came() -> None:
    fleet, flight = timed()
    assert fleet.receive(until=(flight.starts[0] + flight.starts[1]) / 2) is None
    fleet.post(note(5), ["c0"])
    delivered = fleet._mail.notes(0, fleet.now)[0].came
    assert flight.starts[1] > delivered > fleet.now  # a note takes its time, too
    assert heard(fleet) == [0.0, 5.0, 0.0, 0.0]


def test_a_note_on_its_way_when_a_leg_begins_is_read_by_the_next() -> None:
    fleet, flight = timed()
    fleet.receive(until=flight.starts[1] - 1e-3)
    fleet.post(note(5), ["c0"])
    assert heard(fleet) == [0.0, 0.0, 5.0, 0.0]


def test_a_note_after_the_last_leg_began_waits_for_the_next_task() -> None:
    fleet, flight = timed()
    fleet.receive(until=flight.starts[2] + 1e-3)
    fleet.post(note(5), ["c0"])
    assert heard(fleet) == [0.0, 0.0, 0.0, 0.0]
    fleet.send(ask(), to="c0")
    assert heard(fleet) == [5.0, 0.0, 0.0, 0.0]
    fleet.send(ask(), to="c0")
    assert heard(fleet) == [0.0] * 4  # read once


def test_the_first_leg_reads_what_came_before_the_task_was_sent() -> None:
    fleet = telling((20, 20))
    fleet.post(note(3), ["c0"])
    fleet.send(ask(), to="c0")  # overtakes the note
    assert heard(fleet) == [0.0] * 4
    fleet.send(ask(), to="c0")
    assert heard(fleet) == [3.0, 0.0, 0.0, 0.0]


def test_a_note_from_before_the_task_is_not_replaced_by_one_that_comes_while_the_task_is_on_its_way() -> None:
    fleet = telling((200,))
    fleet.post(note(1), ["c0"])
    fleet.spend(10.0)
    fleet.send(Ask(torch.ones(5000)), to="c0", legs=3)  # takes longer to get there than the note
    fleet.post(note(2), ["c0"])
    (flight,) = in_flight(fleet)
    assert flight.starts[0] > fleet._mail.notes(0, fleet.now)[-1].came
    assert heard(fleet) == [1.0, 2.0, 0.0, 0.0]


def test_the_newest_note_wins() -> None:
    fleet, _ = timed()
    for number in (1, 2, 3):
        fleet.post(note(number), ["c0"])
    assert heard(fleet) == [0.0, 3.0, 0.0, 0.0]


def test_a_large_note_that_comes_late_does_not_undo_a_newer_one() -> None:
    fleet = telling((20,))
    fleet.post(Note(torch.ones(10_000)), ["c0"])
    fleet.post(note(2), ["c0"])
    old, new = (one.came for one in fleet._mail.notes(0, fleet.now))
    assert new < old
    fleet.spend(new + 1e-6)
    fleet.send(ask(), to="c0")
    assert heard(fleet) == [2.0, 0.0, 0.0, 0.0]
    fleet.spend(old)
    fleet.send(ask(), to="c0")
    assert heard(fleet) == [0.0] * 4  # the older note is out of date


def test_mail_goes_to_those_it_is_for() -> None:
    fleet = telling((20, 20, 20))
    fleet.post(note(4), ["c0", "c2"])
    fleet.spend(10.0)
    answers = fleet.gather({client: ask() for client in fleet.idle})
    assert [answer.update.heard[0].item() for answer in answers] == [4.0, 0.0, 4.0]


def test_notes_nobody_reads_do_not_pile_up() -> None:
    fleet = telling()
    for number in range(50):
        fleet.post(note(number), ["c0"])
        fleet.spend(10.0)
    assert len(fleet._mail.notes(0, fleet.now)) <= 2
    fleet.send(ask(), to="c0")
    assert heard(fleet)[0] == 49.0


def test_mail_is_counted() -> None:
    fleet = telling()
    message = note(1)
    fleet.post(message, ["c0", "c1"])
    fleet.spend(10.0)
    fleet.gather({client: ask() for client in ("c0", "c1")})
    records = [r for r in tasks_of(fleet) if r.outcome == "post"]
    assert [(r.client, r.program, r.bytes_down, r.bytes_up) for r in records] == [
        ("c0", "Note", len(encode(message)), 0),
        ("c1", "Note", len(encode(message)), 0),
    ]
    seconds = 0.25 + 8 * len(encode(message)) / 80_000
    assert all(r.joules == pytest.approx(0.25 * seconds) for r in records)


def test_a_note_that_was_replaced_unread_is_not_counted() -> None:
    fleet, flight = timed()
    for number in (1, 2, 3):
        fleet.post(note(number), ["c0"])
    assert heard(fleet) == [0.0, 3.0, 0.0, 0.0]
    (record,) = [r for r in tasks_of(fleet) if r.outcome == "post"]
    assert record.started < flight.starts[1]  # it was there when the leg that read it began


def test_each_leg_draws_from_its_own_key() -> None:
    draws = set()
    for legs in (1, 2, 3):
        fleet = telling((4,))
        fleet.send(ask(), to="c0", legs=legs)
        (answer,) = rest(fleet)
        draws.add(float(answer.update.draw))
    assert draws == {float(keys.number(0, "c0", 0, leg)) / 2.0**40 for leg in range(3)}


@settings(max_examples=20)
@given(cut=st.floats(0.0, 1.0), count=st.integers(1, 3))
def test_no_leg_depends_on_what_was_posted_after_it_began(cut: float, count: int) -> None:
    """Whatever the engine computed already or not, a note reaches exactly the legs that begin after it came."""
    fleet, flight = timed(legs=4)
    fleet.send(ask(), to="c1")  # its arrival makes the engine compute early
    fleet.receive(until=cut * flight.arrives)
    for _ in range(count):
        fleet.post(note(5), ["c0"])
    came = fleet._mail.notes(0, fleet.now)[-1].came
    expected = [leg for leg, begin in enumerate(flight.starts) if (begin if leg else flight.sent) > came]
    numbers = next(a for a in rest(fleet) if a.client == "c0").update.heard.tolist()
    assert [leg for leg, number in enumerate(numbers) if number] == expected[:1]


# -- hand-off --------------------------------------------------------------------------------------------------------


def paired() -> LocalFleet:
    """c0 and c1 hand over to c2; nobody to c3."""
    return telling((4, 4, 4, 4), gear=unlike([4.0, 2.0, 1.0, 1.0]), partners=[2, 2, None, None])


def test_a_hand_off_reaches_the_partner_only() -> None:
    fleet = paired()
    assert fleet.clients["c0"].partner == "c2"
    assert fleet.clients["c3"].partner is None
    (answer,) = fleet.gather({"c0": ask(9)})
    assert not hasattr(answer.update, "handoff")
    answers = fleet.gather({client: ask() for client in fleet.idle})
    assert [float(answer.update.parcel) for answer in answers] == [0.0, 0.0, 9.0, 0.0]


def test_a_hand_off_takes_time_on_the_link_and_is_counted_apart() -> None:
    fleet = paired()
    fleet.gather({"c0": ask(9)})
    (record,) = tasks_of(fleet)
    assert record.bytes_handoff == len(encode(torch.tensor(9.0)))
    assert record.arrived - record.trained == pytest.approx(0.25 + 8 * (record.bytes_up + record.bytes_handoff) / 8_000)


def test_a_hand_off_that_comes_while_the_partner_is_at_work_is_for_its_next_task() -> None:
    """Also when the engine gets round to that work only later."""
    fleet = paired()
    fleet.send(ask(), to="c2", legs=4)
    fleet.send(ask(9), to="c0")
    first, second = rest(fleet)
    assert (first.client, second.client) == ("c0", "c2")
    assert float(second.update.parcel) == 0.0
    (answer,) = fleet.gather({"c2": ask()})
    assert float(answer.update.parcel) == 9.0


def test_a_parcel_is_opened_once() -> None:
    fleet = paired()
    fleet.gather({"c0": ask(9)})
    (answer,) = fleet.gather({"c2": ask()})
    assert float(answer.update.parcel) == 9.0
    assert fleet.snapshot()["parcels"] == {}
    (answer,) = fleet.gather({"c2": ask()})
    assert float(answer.update.parcel) == 0.0


def test_a_task_that_came_to_nothing_leaves_its_parcel() -> None:
    whole, faulty, again = (telling((4, 4), partners=[1, None], faults=Faults(nan=nan)) for nan in (0.0, 1.0, 0.0))
    whole.gather({"c0": ask(9)})
    faulty.restore(whole.snapshot())
    assert faulty.gather({"c1": ask()}) == []
    again.restore(faulty.snapshot())
    (answer,) = again.gather({"c1": ask()})
    assert float(answer.update.parcel) == 9.0


def test_a_refused_update_hands_nothing_over() -> None:
    fleet = telling((4, 4), partners=[1, None], faults=Faults(nan=1.0))
    assert fleet.gather({"c0": ask(9)}) == []
    assert fleet.snapshot()["parcels"] == {}


# -- private state ---------------------------------------------------------------------------------------------------


def test_private_state_moves_on_with_updates_that_were_taken() -> None:
    fleet = telling((4, 4))
    for expected in (0.0, 1.0, 2.0):
        (answer,) = fleet.gather({"c0": ask()})
        assert float(answer.update.tasks) == expected
    assert float(fleet.mine(0).tasks) == 3.0
    assert float(fleet.mine(1).tasks) == 0.0
    spoiled = telling((4,), faults=Faults(corrupt=1.0))
    spoiled.gather({"c0": ask()})
    assert float(spoiled.mine(0).tasks) == 0.0


# -- those who cannot ------------------------------------------------------------------------------------------------


def test_a_device_too_small_is_told_so_and_never_asked_again() -> None:
    tiny = replace(DEVICE, name="tiny", memory=1000)
    fleet = telling((4, 4), gear=[(DEVICE, PLAIN), (tiny, PLAIN)])
    for client in fleet.idle:
        fleet.send(ask(), to=client)
    lost, came = rest(fleet)
    assert isinstance(lost, Lost)
    assert isinstance(came, Arrival)
    assert (lost.client, lost.at) == ("c1", 0.0)
    assert lost.reason.startswith("does not fit: tiny: training needs ")
    assert list(fleet.idle) == ["c0"]
    assert fleet.unfit == ["c1"]
    tasks, events = fleet.log.drain()
    refused = next(task for task in tasks if task.client == "c1")
    assert (refused.outcome, refused.macs, refused.joules, refused.bytes_down, refused.bytes_up) == ("lost", 0, 0, 0, 0)
    assert [event.kind for event in events if event.client == "c1"] == ["does-not-fit", "lost"]


def test_when_nobody_can_hold_the_model_the_run_ends_with_the_reason() -> None:
    tiny = replace(DEVICE, name="tiny", memory=1000)
    fleet = telling((4, 4), gear=[(tiny, PLAIN)])
    fleet.gather({client: ask() for client in fleet.idle})
    fleet.log.drain()  # the driver has looked in between
    with pytest.raises(
        FleetEmpty, match="2 of 2 clients cannot hold the model; c0: does not fit: tiny: training needs"
    ):
        fleet.gather({})
    moved = telling((4, 4), gear=[(tiny, PLAIN)])
    moved.restore(decode(encode(fleet.snapshot()), TOY.classes))
    with pytest.raises(FleetEmpty, match="c0: does not fit: tiny"):
        moved.receive()


def test_nobody_unfit_is_waited_for() -> None:
    """Their links come and go for ever; they will not be asked again."""
    tiny = replace(DEVICE, name="tiny", memory=1000)
    shaky = replace(PLAIN, name="shaky", availability=Availability(0.5, 20.0))
    fleet = telling((4, 4), gear=[(tiny, shaky), (DEVICE, PLAIN)], leaves=moments(float("inf"), 60.0))
    while fleet.now < 59:
        for client in fleet.idle:
            fleet.send(ask(), to=client)
        fleet.receive(until=59.0)
    rest(fleet)
    assert fleet.unfit == ["c0"]
    fleet.spend(10.0)
    with pytest.raises(FleetEmpty, match="1 of 2 clients cannot hold the model"):
        fleet.receive()


# -- coming and going ------------------------------------------------------------------------------------------------


def test_a_client_is_idle_from_its_join_to_its_leave() -> None:
    fleet = telling((4, 4, 4), joins=moments(0.0, 5.0, 0.0), leaves=moments(float("inf"), float("inf"), 8.0))
    assert list(fleet.idle) == ["c0", "c2"]
    fleet.spend(5.0)
    assert list(fleet.idle) == ["c0", "c1", "c2"]
    fleet.spend(3.0)
    assert list(fleet.idle) == ["c0", "c1"]
    assert list(fleet.clients) == ["c0", "c1", "c2"]


def test_with_nothing_in_flight_time_goes_on_to_the_next_joiner() -> None:
    fleet = telling((4, 4), joins=moments(30.0, 12.0))
    assert list(fleet.idle) == []
    assert fleet.receive() is None
    assert (fleet.now, list(fleet.idle)) == (12.0, ["c1"])
    assert fleet.receive(until=20.0) is None
    assert fleet.now == 20.0
    assert fleet.receive() is None
    assert (fleet.now, list(fleet.idle)) == (30.0, ["c0", "c1"])


def test_a_joiner_is_seen_while_others_are_at_work() -> None:
    fleet = telling((4, 4), joins=moments(0.0, 0.1))
    fleet.send(ask(), to="c0")
    assert fleet.receive() is None
    assert (fleet.now, list(fleet.idle)) == (0.1, ["c1"])
    fleet.send(ask(), to="c1")
    assert [answer.client for answer in rest(fleet)] == ["c0", "c1"]


def test_a_gathering_does_not_end_because_somebody_came() -> None:
    fleet = telling((4, 4), joins=moments(0.0, 0.1))
    assert [answer.client for answer in fleet.gather({"c0": ask()})] == ["c0"]


def test_somebody_who_never_joins_is_not_waited_for() -> None:
    fleet = telling((4, 4), joins=moments(float("inf"), 3.0), leaves=moments(float("inf"), 4.0))
    assert fleet.receive() is None
    assert fleet.now == 3.0
    fleet.spend(2.0)
    with pytest.raises(FleetEmpty, match="none of the 2 clients will ever be reachable"):
        fleet.receive()


def test_one_who_leaves_at_work_is_lost_at_that_moment() -> None:
    stays = telling((40,))
    stays.send(ask(), to="c0")
    (flight,) = in_flight(stays)
    middle = (flight.starts[0] + flight.trained) / 2

    fleet = telling((40, 40), leaves=moments(middle, float("inf")))
    fleet.send(ask(), to="c0")
    answer = fleet.receive()
    assert isinstance(answer, Lost)
    assert (answer.at, answer.reason) == (middle, "left while it worked")
    assert list(fleet.idle) == ["c1"]
    (record,) = tasks_of(fleet)
    assert (record.outcome, record.bytes_up) == ("lost", 0)
    assert record.macs == pytest.approx(flight.macs / 2)
    assert stacks(fleet) == (0, 0)


def test_one_who_leaves_after_its_update_arrived_was_there() -> None:
    stays = telling((40,))
    stays.send(ask(), to="c0")
    (came,) = rest(stays)
    fleet = telling((40,), leaves=moments(came.at + 1e-6))
    fleet.send(ask(), to="c0")
    assert isinstance(fleet.receive(), Arrival)


@pytest.mark.parametrize("options", [{"joins": moments(9.0, 0.0)}, {"leaves": moments(0.0, 9.0)}])
def test_a_task_for_somebody_who_is_not_here_is_lost_at_once_and_free(options: dict[str, Any]) -> None:
    fleet = telling((4, 4), **options)
    fleet.send(ask(), to="c0")
    answer = fleet.receive()
    assert isinstance(answer, Lost)
    assert (answer.client, answer.at, answer.reason) == ("c0", 0.0, "is not here")
    (record,) = tasks_of(fleet)
    assert (record.macs, record.bytes_down, record.bytes_up, record.joules) == (0.0, 0, 0, 0.0)


def test_links_that_come_and_go() -> None:
    link = replace(PLAIN, name="shaky", availability=Availability(0.4, 50.0))
    fleet = telling((4,) * 6, gear=[(DEVICE, link)])
    numbers = [keys.number(0, f"c{i}", "presence") for i in range(6)]
    seen = set()
    for _ in range(60):
        here = [f"c{i}" for i, number in enumerate(numbers) if link.availability.available(number, fleet.now)]
        assert list(fleet.idle) == here
        seen.update(here)
        before = fleet.now
        fleet.receive()
        assert before < fleet.now < float("inf")
    assert seen == {f"c{i}" for i in range(6)}


def test_one_who_comes_back_is_seen_while_others_are_at_work() -> None:
    link = replace(PLAIN, name="shaky", availability=Availability(0.5, 1.0))
    very_slow = replace(DEVICE, name="very slow", macs_per_second=100.0)
    fleet = telling((4,) * 3, gear=[(very_slow, PLAIN), (DEVICE, link), (DEVICE, link)])
    fleet.send(ask(), to="c0")
    seen = set()
    while isinstance(fleet.receive(), type(None)):
        seen.update(fleet.idle)
    assert seen == {"c1", "c2"}


def test_an_ever_present_link_is_no_reason_to_wait_for_ever() -> None:
    always = replace(PLAIN, name="always", availability=Availability(1.0, 50.0))
    fleet = telling((4, 4), gear=[(DEVICE, always)], leaves=moments(5.0, 6.0))
    fleet.spend(10.0)
    with pytest.raises(FleetEmpty):
        fleet.receive()
    assert fleet.now == 10.0


def test_the_roster_tells_what_a_server_may_know() -> None:
    fleet = telling((4, 9), kinds=["wearable", "access-point"])
    profile = fleet.clients["c1"]
    assert (profile.device, profile.link, profile.samples, profile.kind) == ("slow", "plain", 9, "access-point")
    with pytest.raises(KeyError):
        fleet.clients["nobody"]


# -- snapshot --------------------------------------------------------------------------------------------------------

ROUNDS = 20
OPTIONS: dict[str, Any] = {
    "equipment": unlike([0.2, 1.0, 3.0, 0.7, 2.0]),
    "joins": moments(0, 0, 1.0, 0, 0, 3.0),
    "leaves": moments(*[float("inf")] * 4, 6.0, float("inf")),
    "faults": Faults(dropout=0.1, late=0.1, duplicate=0.2, corrupt=0.1, nan=0.1),
    "limit": 100_000,
}
SIZES = (6, 9, 12, 5, 8, 7)


def begun(legs: int) -> tuple[LocalFleet, Any, Config]:
    config = Config(legs=legs)
    fleet, state = fleet_of(TOY, config, made(SIZES), **OPTIONS)
    return fleet, state, config


def through(fleet: LocalFleet, state: Any, config: Config, rounds: int) -> tuple[Any, list[Any], list[Any]]:
    program = TOY.server(fleet, state, config)
    tasks, events = [], []
    for _ in range(rounds):
        state = next(program)
        more_tasks, more_events = fleet.log.drain()
        tasks += more_tasks
        events += more_events
    return state, tasks, events


WHOLE = {}


def uninterrupted(legs: int) -> tuple[LocalFleet, Any, list[Any], list[Any]]:
    if legs not in WHOLE:
        fleet, state, config = begun(legs)
        WHOLE[legs] = (fleet, *through(fleet, state, config, ROUNDS))
    return WHOLE[legs]


@settings(max_examples=8)
@given(cuts=st.lists(st.integers(0, ROUNDS), max_size=3), legs=st.sampled_from([1, 3]))
def test_a_run_cut_with_tasks_in_flight_ends_with_the_same_bits_and_the_same_log(cuts: list[int], legs: int) -> None:
    whole, state_whole, tasks_whole, events_whole = uninterrupted(legs)
    assert {task.outcome for task in tasks_whole} == {"accepted", "lost", "refused", "repeat", "post"}

    fleet, state, config = begun(legs)
    tasks, events, done = [], [], 0
    for cut in [*sorted(cuts), ROUNDS]:
        state, more_tasks, more_events = through(fleet, state, config, cut - done)
        tasks += more_tasks
        events += more_events
        done = cut
        saved = encode({"state": state, "fleet": fleet.snapshot()})
        fleet, _, _ = begun(legs)  # as in a new process
        found = decode(saved, TOY.classes)
        fleet.restore(found["fleet"])
        state = found["state"]
    assert encode(state) == encode(state_whole)
    assert tasks == tasks_whole
    assert events == events_whole
    assert encode(fleet.snapshot()) == encode(whole.snapshot())
