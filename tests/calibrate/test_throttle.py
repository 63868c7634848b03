import signal
import subprocess
import sys

import pytest

from potluck.calibrate.throttle import PERIOD, Quota, Stops, check_share, used_seconds
from potluck.errors import BadInput


class Machine:
    """A process that always works when it is let, in a time of its own."""

    def __init__(self):
        self.at, self.done, self.going, self.sent = 0.0, 0.0, True, []

    def pass_(self, seconds):
        self.at += seconds
        self.done += seconds if self.going else 0.0

    def send(self, process, number):
        self.going = number == signal.SIGCONT
        self.sent.append(number)


def test_stops_keep_the_share_over_time():
    machine = Machine()
    stops = Stops(7, 0.1, used=lambda _: machine.done, now=lambda: machine.at, send=machine.send, threaded=False)
    for _ in range(2000):
        machine.pass_(0.05)
        stops.look()
    assert machine.done / machine.at == pytest.approx(0.1, rel=0.02)
    stops.set(0.5)
    before, began = machine.done, machine.at
    for _ in range(2000):
        machine.pass_(0.05)
        stops.look()
    assert (machine.done - before) / (machine.at - began) == pytest.approx(0.5, rel=0.02)
    stops.close()
    assert machine.going or machine.sent[-1] == signal.SIGCONT


def test_a_group_that_cannot_be_made_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="potluck-7"):
        Quota(7, 0.1, root=tmp_path / "nowhere")


@pytest.mark.parametrize("share", [0.0, 0.001, 1.5, float("nan")])
def test_a_share_is_a_part_of_a_core(share):
    with pytest.raises(BadInput, match="a share of a core"):
        check_share(share)


def test_a_quota_holds_a_real_process():
    """A process that would use a whole core gets a twentieth, where control groups are allowed."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        try:
            quota = Quota(busy.pid, 0.05)
        except OSError:
            pytest.skip("this user may not make control groups")
        before = used_seconds(busy.pid)
        with pytest.raises(subprocess.TimeoutExpired):
            busy.wait(1.0)
        assert used_seconds(busy.pid) - before <= 0.2
        assert PERIOD == 100_000
    finally:
        busy.kill()
        busy.wait()
        quota.close()
    assert not quota.folder.exists()
