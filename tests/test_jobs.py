"""Jobs of the workers of Dask and Ray: what ends them before they begin, and which of several errors is the cause."""

from __future__ import annotations

import threading
import time

import pytest

from manyclass.distributed import AbortedError, CommunicatorError, PeerLostError
from manyclass.distributed.jobs import Worker, cause, new_job


class Estimator:
    """Stands in for one: tells whether its fit is to end, and what it was given."""

    def _together(self):
        return lambda comm, parts, path: (comm.interrupted, comm.size, parts, path)


def test_an_interrupt_that_comes_before_the_fit_is_heeded():
    worker = Worker(new_job(2.0, 5.0), "127.0.0.1")
    worker.interrupt()
    assert worker.fit(0, [worker.address], Estimator(), ["rows"], "p") == (True, 1, ["rows"], "p")
    worker = Worker(new_job(2.0, 5.0), "127.0.0.1")
    assert worker.fit(0, [worker.address], Estimator(), [], None) == (False, 1, [], None)


def test_a_worker_that_waits_for_another_one_can_be_stopped():
    job = new_job(2.0, 5.0)
    worker, other = (Worker(job, "127.0.0.1") for _ in range(2))

    def stop():
        time.sleep(0.3)
        worker.stop("another worker was lost")

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(CommunicatorError, match=r"not connected with rank 1 at 127.* \(the job was ended\)"):
        worker.fit(0, [worker.address, other.address], Estimator(), [], None)
    stopping.join()
    other.close()


def test_the_secret_of_a_job_is_not_shown():
    job = new_job(2.0, 5.0)
    assert str(job.secret) not in repr(job)
    assert len({new_job(2.0, 5.0).secret for _ in range(3)} | {job.secret}) == 4


@pytest.mark.parametrize("wrong", [{"silence": 0.0}, {"stall": -1.0}])
def test_durations_are_checked(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be a positive number of seconds"):
        new_job(**{"silence": 8.0, "stall": 60.0, **wrong})


def test_the_cause_is_what_the_others_did_not_follow():
    bug, lost, other, told = ArithmeticError(), PeerLostError(), CommunicatorError(), AbortedError()
    assert cause({0: told, 1: lost, 2: bug}) is bug
    assert cause({0: told, 1: other, 2: lost}) is lost
    assert cause({0: told, 2: other}) is other
