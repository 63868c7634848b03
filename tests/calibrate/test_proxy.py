import socket
import threading
import time

import numpy as np
import pytest

from potluck.calibrate.proxy import RESEND, Line, Proxies, Proxy, Shape
from potluck.errors import BadInput


def line(shape):
    return Line(shape, np.random.default_rng(0))


def test_pieces_leave_at_the_rate_and_arrive_one_latency_later():
    one = line(Shape(rate=8000.0, latency=0.5))  # a thousand bytes a second
    assert one.send(1000, now=10.0) == pytest.approx(11.5)
    assert one.send(500, now=10.0) == pytest.approx(12.0)  # waits for the first
    assert one.send(1000, now=20.0) == pytest.approx(21.5)  # the link was free again
    assert one.nbytes == 2500


def test_jitter_keeps_the_mean_and_the_order():
    one = line(Shape(rate=1e9, latency=1.0, jitter=0.3))
    arrivals = [one.send(1, now=100.0 * k) - 100.0 * k for k in range(4000)]
    assert np.mean(arrivals) == pytest.approx(1.0, rel=0.02)
    assert np.std(np.log(arrivals)) == pytest.approx(0.3, rel=0.05)
    burst = line(Shape(rate=1e9, latency=1.0, jitter=1.0))
    together = [burst.send(1, now=0.0) for _ in range(200)]
    assert together == sorted(together)


def test_a_lost_piece_comes_later_and_takes_its_place_again():
    one = line(Shape(rate=8000.0, latency=0.01, loss=0.25))
    late = [one.send(100, now=100.0 * k) - 100.0 * k - 0.11 for k in range(4000)]
    lost = np.array(late) > 1e-6
    assert lost.mean() == pytest.approx(0.25, abs=0.03)
    assert min(np.array(late)[lost]) == pytest.approx(RESEND + 0.1)


@pytest.mark.parametrize(
    "wrong", [{"rate": 0}, {"rate": 1, "loss": 1}, {"rate": 1, "latency": -1}, {"rate": 1, "jitter": 9}]
)
def test_an_impossible_link_is_refused(wrong):
    with pytest.raises(BadInput, match="must be"):
        Shape(**wrong)


def test_bytes_go_through_unchanged_and_are_counted():
    """Over real sockets: an echo behind a proxy."""
    content = np.random.default_rng(0).bytes(60_000)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo():
            there, _ = server.accept()
            with there:
                while piece := there.recv(65_536):
                    there.sendall(piece)

        threading.Thread(target=echo, daemon=True).start()
        shape = Shape(rate=8e6, latency=0.02)
        proxy = Proxy(("127.0.0.1", server.getsockname()[1]), shape, shape)
        with Proxies({"s00": proxy}), socket.create_connection(("127.0.0.1", proxy.port)) as here:
            began, back = time.monotonic(), b""
            here.sendall(content)
            here.shutdown(socket.SHUT_WR)
            while piece := here.recv(65_536):
                back += piece
            took = time.monotonic() - began
        assert back == content
        assert (proxy.bytes_up, proxy.bytes_down) == (60_000, 60_000)
        assert took >= 0.09  # 60 ms at a million bytes a second, and 20 ms each way
