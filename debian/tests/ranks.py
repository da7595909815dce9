# SPDX-License-Identifier: BSD-2-Clause
"""ranks.py FOLDER [FILE]: what each rank of an MPI program does: hello, and an allreduce over the libfabric.so.1 of FOLDER.

With FILE it repeats the allreduce until FILE is there; rank 0 writes how often into FILE.count.
"""
import array
import os
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()


def allreduce(count):
    values = array.array("d", [rank + 1] * count)
    world.Allreduce(MPI.IN_PLACE, values)
    assert values[0] == values[-1] == size * (size + 1) / 2, values[0]


def count_to(times):
    with open(sys.argv[2] + ".count.new", "w", encoding="utf-8") as file:
        file.write(str(times))
    os.rename(sys.argv[2] + ".count.new", sys.argv[2] + ".count")


allreduce(1)
allreduce(100_000)
with open("/proc/self/maps", encoding="utf-8") as file:
    loaded = {line.split(maxsplit=5)[5].split(" (deleted)")[0].strip() for line in file if "libfabric.so" in line}
assert len(loaded) == 1 and loaded.pop().startswith(sys.argv[1] + "/libfabric.so.1.0."), loaded
if len(sys.argv) > 2:
    times, ends = 0, array.array("d", [0])
    while not ends[0]:
        times += 1
        allreduce(1000)
        ends = array.array("d", [rank == 0 and os.path.exists(sys.argv[2])])
        world.Allreduce(MPI.IN_PLACE, ends)
        if rank == 0 and times % 100 == 0:
            count_to(times)
print(f"rank {rank} of {size}: hello, sum right, over weft", flush=True)
