"""Threads over ranges: order, number, failures, interrupts."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, strategies as st

from manyclass.runtime.threads import ranges, resolve_n_jobs, run


@given(st.integers(0, 500), st.integers(1, 60))
def test_ranges_cut_everything_once(n, size):
    pieces = ranges(n, size)
    assert [i for begin, end in pieces for i in range(begin, end)] == list(range(n))
    assert all(end - begin == size for begin, end in pieces[:-1])
    assert all(0 < end - begin <= size for begin, end in pieces)


@pytest.mark.parametrize("n_threads", [1, 2, 5, 100])
def test_results_come_in_the_order_of_the_pieces(n_threads):
    def slow_first(begin, end):
        time.sleep(0.02 if begin == 0 else 0.0)
        return begin, end

    pieces = ranges(23, 4)
    assert run(slow_first, pieces, n_threads) == pieces


def test_no_pieces_no_results():
    assert run(lambda begin, end: None, [], 4) == []


def test_pieces_run_at_the_same_time():
    """Two pieces that wait for each other finish only side by side."""
    meeting = threading.Barrier(2, timeout=20)
    assert sorted(run(lambda begin, end: meeting.wait(), [(0, 1), (1, 2)], 2)) == [0, 1]


def test_one_thread_is_the_callers():
    seen = run(lambda begin, end: threading.get_ident(), ranges(5, 1), 1)
    assert set(seen) == {threading.get_ident()}


@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_failure_is_raised_and_ends_the_work(n_threads):
    started = []

    def task(begin, end):
        started.append(begin)
        if begin == 2:
            raise ArithmeticError("piece 2")
        time.sleep(0.005)

    with pytest.raises(ArithmeticError, match="piece 2"):
        run(task, ranges(200, 1), n_threads)
    assert len(started) < 200
    count = len(started)
    time.sleep(0.05)
    assert len(started) == count


def test_an_interrupt_waits_for_the_pieces_under_way():
    """Ctrl-C during a run: no piece writes after run has returned, and those not begun never begin."""
    begun, ended = [], []

    def task(begin, end):
        begun.append(begin)
        try:
            if begin == 1:
                signal.raise_signal(signal.SIGINT)
            time.sleep(0.1)
        finally:  # the caller's own piece ends by the interrupt
            ended.append(begin)

    with pytest.raises(KeyboardInterrupt):
        run(task, ranges(50, 1), 2)
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 50


def test_resolve_n_jobs():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert resolve_n_jobs(None) == 1
    assert resolve_n_jobs(3) == resolve_n_jobs(np.int32(3)) == 3
    assert resolve_n_jobs(-1) == cores
    assert resolve_n_jobs(-2) == max(1, cores - 1)
    assert resolve_n_jobs(-1000) == 1
    assert 8 <= resolve_n_jobs(1000) == max(8, 2 * cores) < 1000


@pytest.mark.parametrize("wrong", [0, 1.5, 2.0, True, False, "2", float("nan"), float("inf"), [1]])
def test_resolve_n_jobs_refuses_what_is_no_number_of_threads(wrong):
    with pytest.raises(ValueError, match="n_jobs"):
        resolve_n_jobs(wrong)
