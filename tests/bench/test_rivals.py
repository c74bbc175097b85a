# SPDX-License-Identifier: Apache-2.0
"""The floor, and the stand-in for pyACL."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from aioascend.bench import _rivals
from aioascend.bench.rig import ACL_HOST_TO_DEVICE, ACL_NO_BLOCK, Rig, load_acl
from aioascend.bench.settings import Settings
from aioascend.testing import Simulator

NOT_SUBSCRIBED_THREAD = 107012
NOT_SUBSCRIBED_STREAM = 107015
BYTES = _rivals.LANE_BYTES


@pytest.fixture
def rig(tiny: Settings) -> Iterator[Rig]:
    acl, flavour = load_acl(tiny)
    assert flavour == "stand-in"
    rig = Rig(acl, 2, 4)
    yield rig
    rig.close()


def floor_lanes(rig: Rig) -> list[tuple[int, int, int, int]]:
    return [(lane.stream, lane.device, lane.source, lane.result) for lane in rig.lanes]


@pytest.mark.parametrize(
    "call",
    [
        "init()",
        "get_context()",
        "process_report(1)",
        "synchronize_stream(1)",
        "memcpy_async(1, 8, 1, 8, 1, 1)",
        "launch_callback(print, None, 0, 1)",
        "submit_seconds((1, 1, 1, 1), 1, 1)",
        "Floor(1, [(1, 1, 1, 1)])",
    ],
)
def test_without_a_library_it_says_what_is_missing(call: str) -> None:
    # In a process that has not been told.
    program = f"from aioascend.bench import _rivals; _rivals.{call}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: which library is measured has not been said: call use(path) first" in done.stderr


# --- the floor ---


def test_the_floor_copies(rig: Rig) -> None:
    for number, lane in enumerate(rig.lanes):
        ctypes.memmove(lane.source, bytes([number + 1] * BYTES), BYTES)
    floor = _rivals.Floor(rig.context, floor_lanes(rig))
    callbacks, wakeups = floor.run(5)
    floor.close()
    assert callbacks == 5 * len(rig.lanes)
    assert 5 <= wakeups <= callbacks
    for number, lane in enumerate(rig.lanes):
        assert ctypes.string_at(lane.device, _rivals.COPY_BYTES) == bytes([number + 1] * _rivals.COPY_BYTES)


def test_the_floor_runs_chains(rig: Rig) -> None:
    for lane in rig.lanes:
        ctypes.memmove(lane.source, b"\xaa" * BYTES, BYTES)
    floor = _rivals.Floor(rig.context, floor_lanes(rig))
    callbacks, _ = floor.run(3, chains=True)
    floor.close()
    assert callbacks == 3 * len(rig.lanes)
    set_bytes = bytes(range(1, _rivals.CHAIN_KERNELS + 1))
    for lane in rig.lanes:
        assert ctypes.string_at(lane.result, BYTES) == set_bytes + b"\xaa" * (BYTES - len(set_bytes))


def test_a_failing_submit_ends_the_floor(rig: Rig, sim: Simulator) -> None:
    floor = _rivals.Floor(rig.context, floor_lanes(rig))
    sim.fail_call("aclrtMemcpyAsync", nth=7, code=507000)
    with pytest.raises(RuntimeError, match="507000"):
        floor.run(5)
    floor.run(2)  # it can go on
    floor.close()


def test_a_closed_floor_says_so(rig: Rig) -> None:
    floor = _rivals.Floor(rig.context, floor_lanes(rig))
    floor.close()
    floor.close()
    with pytest.raises(RuntimeError, match="closed"):
        floor.run(1)


def test_a_stream_has_one_floor(rig: Rig) -> None:
    floor = _rivals.Floor(rig.context, floor_lanes(rig))
    with pytest.raises(RuntimeError, match="aclrtSubscribeReport"):
        _rivals.Floor(rig.context, floor_lanes(rig))
    floor.close()


def test_the_price_of_a_submit_is_that_of_memsets(rig: Rig, sim: Simulator) -> None:
    before = sim.calls("aclrtMemsetAsync")
    assert _rivals.submit_seconds(floor_lanes(rig)[0], 10, 4) > 0
    assert sim.calls("aclrtMemsetAsync") == before + 10
    assert ctypes.string_at(rig.lanes[0].device, 1) == b"\x01"


def test_a_library_that_is_none_is_refused() -> None:
    with pytest.raises(RuntimeError, match="/nowhere/"):
        _rivals.use("/nowhere/libascendcl.so")


# --- the stand-in ---


class ReportThread:
    """A Python thread in process_report."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._go_on = threading.Event()
        self._stop = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        for stream in rig.streams:
            assert _rivals.subscribe_report(self.thread.ident or 0, stream) == 0
        self._go_on.set()

    def _run(self) -> None:
        _rivals.set_context(self._rig.context)
        self._go_on.wait()
        while not self._stop:
            _rivals.process_report(100)

    def stop(self) -> None:
        self._stop = True
        for stream in self._rig.streams:
            assert _rivals.unsubscribe_report(self.thread.ident or 0, stream) == 0
        self.thread.join()


def test_a_callback_gets_its_data_on_the_thread_in_process_report(rig: Rig) -> None:
    class Data:
        pass

    reports = ReportThread(rig)
    called = threading.Event()
    seen: list[tuple[int, str]] = []

    def callback(given: object) -> None:
        seen.append((threading.get_ident(), type(given).__name__))
        called.set()

    data = Data()
    gone = weakref.ref(data)
    assert _rivals.launch_callback(callback, data, ACL_NO_BLOCK, rig.streams[0]) == 0
    del data
    assert called.wait(60)
    reports.stop()
    assert seen == [(reports.thread.ident, "Data")]
    assert gone() is None  # nothing keeps it


def test_codes_are_returned_not_raised(rig: Rig) -> None:
    assert _rivals.process_report(100) == NOT_SUBSCRIBED_THREAD
    assert _rivals.launch_callback(print, None, ACL_NO_BLOCK, rig.streams[0]) == NOT_SUBSCRIBED_STREAM
    assert _rivals.destroy_stream(12345) != 0
    assert _rivals.query_event_status(12345)[1] != 0


def test_what_is_not_callable_is_refused(rig: Rig) -> None:
    with pytest.raises(TypeError, match="callable"):
        _rivals.launch_callback(None, None, ACL_NO_BLOCK, rig.streams[0])  # type: ignore[arg-type]


def test_events_and_streams_can_be_asked(rig: Rig, sim: Simulator) -> None:
    stream = rig.streams[0]
    event, code = _rivals.create_event_with_flag(1)
    assert code == 0
    with sim.hold(stream):
        assert _rivals.record_event(event, stream) == 0
        assert _rivals.query_event_status(event) == (0, 0)
        assert _rivals.stream_query(stream) == (1, 0)
    assert _rivals.synchronize_event(event) == 0
    assert _rivals.query_event_status(event) == (1, 0)
    assert _rivals.stream_query(stream) == (0, 0)
    assert _rivals.destroy_event(event) == 0


def test_synchronize_gives_up_the_gil(rig: Rig, sim: Simulator) -> None:
    stream = rig.streams[0]

    def release() -> None:
        sim.wait_blocked(stream)  # only now the main thread waits
        sim.release(stream)

    sim.hold(stream)
    lane = rig.lanes[0]
    _rivals.memcpy_async(lane.device, BYTES, lane.source, BYTES, ACL_HOST_TO_DEVICE, stream)
    thread = threading.Thread(target=release)
    thread.start()
    assert _rivals.synchronize_stream(stream) == 0  # with the GIL it would wait for ever
    thread.join()


def test_a_copy_keeps_the_gil(rig: Rig, sim: Simulator) -> None:
    takes = 0.05
    sim.set_call_latency("aclrtMemcpyAsync", takes)
    running = threading.Event()
    stop = False
    longest = 0.0

    def run_along() -> None:
        nonlocal longest
        before = time.perf_counter()
        while not stop:
            now = time.perf_counter()
            longest = max(longest, now - before)
            before = now
            running.set()

    thread = threading.Thread(target=run_along)
    thread.start()
    running.wait()
    lane = rig.lanes[0]
    _rivals.memcpy_async(lane.device, BYTES, lane.source, BYTES, ACL_HOST_TO_DEVICE, lane.stream)
    stop = True
    thread.join()
    assert longest >= takes  # for so long the other thread could not run
    assert _rivals.synchronize_stream(lane.stream) == 0
