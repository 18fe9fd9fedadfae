"""Two processes of MPI send each other messages of every kind of size, add up, and write into each other's memory."""

from mpi4py import MPI

world = MPI.COMM_WORLD
me, other = world.rank, 1 - world.rank


def pattern(rank, length):
    return bytes((rank * 101 + at * (length % 7 + 3)) % 251 for at in range(length))


for length in (0, 1, 100, 5000, 65536, 1 << 20):
    out, expected = pattern(me, length), pattern(other, length)
    for _ in range(5):
        found = bytearray(length)
        world.Sendrecv([out, MPI.BYTE], other, 1, [found, MPI.BYTE], other, 1)
        assert found == expected, length
assert world.allreduce(me + 1) == 3
window = MPI.Win.Allocate(4096, comm=world)
window.Fence()
window.Put([pattern(me, 4096), MPI.BYTE], other)
window.Fence()
assert window.tomemory().tobytes() == pattern(other, 4096)
window.Free()
# One of them says it for both: mpirun mixes what several print within a line.
for rank in world.gather(me) or ():
    print("rank", rank, "has what was sent", flush=True)
