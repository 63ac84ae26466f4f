"""A job for `test_faults`: blocks go round for ever; rank 1 fails at epoch 10 where it is told to."""

from __future__ import annotations

import sys
import time

import numpy as np

from manyclass.distributed.opening import create


def main() -> None:
    """The job, on the engine that is named."""
    with create(sys.argv[2], timeout=60.0) as comm:
        header, block, epoch = np.array([comm.rank]), np.zeros(20_000), 0
        while True:
            for step in range(comm.size):
                comm.where = (epoch, step)
                comm.post(header, block, (comm.rank + 1) % comm.size)
                header, block = comm.receive()
                time.sleep(0.02)
            comm.barrier()
            epoch += 1
            if comm.rank == 0:
                sys.stdout.write(f"epoch {epoch}\n")
                sys.stdout.flush()
            if sys.argv[1] == "error" and comm.rank == 1 and epoch == 10:
                raise ArithmeticError("a bug")


if __name__ == "__main__":
    main()
