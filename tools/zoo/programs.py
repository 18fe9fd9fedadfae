"""Programs of other projects: how they are installed and started, and what they print when all is well."""

import signal
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Ports of programs that do not listen by TCP: the UDP port of a RoCE device, which opens with the server.
DEVICE = 4791
# Smaller rings than the defaults of 70 MB a process, and no transport but RDMA.
UCX = {
    "UCX_TLS": "rc_verbs,ud_verbs:aux,self",
    "UCX_RC_RX_QUEUE_LEN": "256",
    "UCX_UD_RX_QUEUE_LEN": "256",
}
OPENMPI_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
PYTHON = "/usr/bin/python3"
# Options that select a GID, connections of librdmacm, or a provider.
SELECTING = ("-g", "-cm1", "verbs;ofi_rxd")


@dataclass
class Speed:
    """A figure that a program prints, to compare with the figure of a run over TCP without softroce."""

    # The word for the table.
    name: str
    # Regular expression whose group is the figure, in the output of the client.
    figure: str
    # How the run over TCP differs: all words of the command, those of the client, TCP port, and variables.
    command: list = None
    client: list = None
    port: int = None
    environment: dict = None


@dataclass
class Crate:
    """A package of crates.io whose examples are programs: {crates}/NAME/bin has them."""

    name: str
    version: str
    examples: list
    features: list = field(default_factory=list)


@dataclass
class Memcheck:
    """What a program needs to bear valgrind, and why: options of valgrind, variables, and words of its commands."""

    why: str
    options: tuple = ()
    environment: dict = field(default_factory=dict)
    words: tuple = ()


@dataclass
class Program:
    """A program, how it is installed and what it must print."""

    name: str
    packages: list
    says: list
    command: list = None
    client: list = None
    # Port at which the server listens when it is ready: a TCP port, or that of the device.
    port: int = None
    # The server ends by itself when its client has.
    ends: bool = False
    build: list = field(default_factory=list)
    # Packages of PyPI, for programs that are started by {python}, or from {bin}.
    wheels: list = field(default_factory=list)
    # A package of PyPI whose source is unpacked in {sources}.
    source: str = None
    # The crate that has it as an example.
    crate: Crate = None
    environment: dict = None
    # None: any.
    statuses: tuple = (0,)
    # Whether it sends packets over RoCE.
    sends: bool = True
    # Whether a run loses packets: not where the program bears no loss, or waits for a time-out after each.
    loss: bool = True
    # Why its processes do not bear valgrind; empty if they do.
    no_memcheck: str = ""
    memcheck: Memcheck = None
    # Takes minutes or gigabytes: runs by name, and at night.
    by_name: bool = False
    # Time limit of a run in seconds, if it is not that of all.
    limit_s: int = None
    speeds: list = field(default_factory=list)
    what: str = ""

    @property
    def has_settings(self):
        """Whether it is started with a variable, or with an option that selects a transport, a GID or a provider. Ceph
        has its transport in a file."""
        return bool(self.environment) or self.name == "Ceph" or any(word in SELECTING for word in (self.client or self.command))


def mpi(name, launcher, compiler, packages, environment=None, options=(), ranks=2, by_name=False):
    return Program(
        name,
        packages,
        ["all data is right"],
        [launcher, "-n", str(ranks), *options, "{build}/mpi"],
        build=[[compiler, "-O1", "-o", "{build}/mpi", str(HERE / "mpi.c")]],
        environment={**UCX, **(environment or {})},
        by_name=by_name,
        what=f"MPI_Alltoall and MPI_Put of 128 KiB between {ranks} ranks, with MPI_THREAD_MULTIPLE; every integer compared",
    )


def pingpong(kind, options=(), memory=None):
    command = [f"ibv_{kind}_pingpong", "-g", "0", "-n", "200", *options]
    # Those for datagrams have no option to validate.
    command += ["-c"] if kind in ("rc", "uc", "srq") else []
    return Program(
        f"ibv_{kind}_pingpong" + (f", {memory}" if memory else ""),
        ["ibverbs-utils"],
        ["200 iters" if kind != "srq" else "iters"],
        command,
        command + ["localhost"],
        port=18515,
        # Programs of unreliable services wait for a lost message forever. The others end without a farewell: after
        # the loss of its last acknowledgement a side retransmits to a process that has ended.
        loss=False,
        what="200 messages" + (", validated" if "-c" in command else "") + (f", `{' '.join(options)}`" if options else ""),
    )


def dapl(name, options, client, says, port, statuses=(0,), what=""):
    return Program(
        name,
        ["dapl2-utils", "libdapl2"],
        says,
        [name, *options],
        [name, *client],
        port,
        # DAPL listens at the address of one interface. ACK time-outs are 67 ms and not four seconds.
        environment={"DAT_OVERRIDE": "{build}/dat.conf", "DAPL_SCM_NETDEV": "lo", "DAPL_ACK_TIMER": "14"},
        statuses=statuses,
        what=what,
    )


def perftest(kind, what, loss=True, **others):
    command = [f"ib_{kind}", "-F", "-n", "1000"]
    return Program(
        f"ib_{kind}", ["perftest"], ["#bytes"], command, command + ["127.0.0.1"], port=18515, ends=True,
        loss=loss, what=f"1000 {what}; perftest compares no data", **others,
    )


def connected(name, server, client, says, what, **others):
    """A program of librdmacm: its server opens the device at 127.0.0.1 when it listens."""
    others = {"packages": ["rdmacm-utils"], "ends": True, **others}
    return Program(name, says=says, command=server, client=client, port=DEVICE, what=what, **others)


def example(crate, name, arguments, client, says, what, **others):
    """An example of a crate, which is compiled with the versions of other crates that its author has locked."""
    program = f"{{crates}}/{crate.name}/bin/{name}"
    return Program(
        f"{name} ({crate.name})", ["clang", "cmake", "gcc", "libclang-dev", "libibverbs-dev", "librdmacm-dev", "libssl-dev",
                                  "pkg-config"],
        says, [program, *arguments], client and [program.replace(name, client[0]), *client[1:]], crate=crate, by_name=True,
        what=f"Rust: {what}", **others,
    )


def ucx_perftest(name, transports, tests, speeds=(), loss=True, environment=None, note="", **others):
    command = ["ucx_perftest", "-p", "13337"]
    environment = environment or {}
    set_too = "".join(f", `{key}={value}`" for key, value in environment.items())
    return Program(
        name, ["ucx-utils"], ["Final:"], command, command + ["127.0.0.1", *tests], port=13337, ends=True,
        environment={**UCX, "UCX_TLS": transports, **environment}, speeds=list(speeds), loss=loss,
        what=f"`{' '.join(tests)}` with `UCX_TLS={transports}`{set_too}{note}", **others,
    )


def ucx_peer_killed(mode, what):
    """An example of UCX one of whose sides kills itself; the failure handler of the other is called, and it ends."""
    program = ["{build}/hello", "-p", "13339", "-e", mode]
    return Program(
        f"ucp_hello_world, {mode}", ["libucx-dev", "ucx-utils", "gcc"], ["failure handler called with status"],
        program, [*program, "-n", "127.0.0.1"], 13339, ends=True,
        build=[["gcc", "-O1", "-o", "{build}/hello", "/usr/share/doc/libucx-dev/examples/ucp_hello_world.c", "-lucp", "-lucs"]],
        # A side that waits for a message looks for its peer each second. Over UD, by which the sides connect, UCX gives a
        # peer up after 30 s by default.
        environment={**UCX, "UCX_RC_TIMEOUT": "100ms", "UCX_KEEPALIVE_INTERVAL": "1s", "UCX_UD_TIMEOUT": "3s"},
        # The side that kills itself, as the system and as a shell reports it.
        statuses=(0, 255, -signal.SIGKILL, 128 + signal.SIGKILL), loss=False, what=f"UCX with error handling: {what}",
    )


# The last but two figures of the line: the mean bandwidth. The second is the mean latency.
UCX_BANDWIDTH = r"Final:(?:\s+[\d.]+){5}\s+([\d.]+)"
UCX_LATENCY = r"Final:\s+\d+\s+[\d.]+\s+([\d.]+)"
UCX_TCP = {"UCX_TLS": "tcp"}

IBVERBS = Crate("ibverbs", "0.9.2", ["loopback"])
SIDEWAY = Crate("sideway", "0.4.3", ["cmtime", "rc_pingpong", "rc_pingpong_split"])
ASYNC_RDMA = Crate("async-rdma", "0.5.0", ["client", "cm_client", "cm_server", "rpc", "server"], ["cm", "raw"])

SLOW = Memcheck("valgrind runs one thread at a time, so the retries of the default timeout, 67 ms, run out", words=("-u", "18"))
PROVIDER = "softroce-scm"
FIO = ["--ioengine=rdma", "--port=7000", "--bs=64k", "--size=64m", "--iodepth=16"]
QPERF = ["qperf", "-t", "1"]
PROGRAMS = [
    Program("ibstat", ["infiniband-diags"], ["CA 'softroce0'", "State: Active"], ["ibstat"], sends=False,
            what="the page of the device"),
    Program("ibstatus", ["infiniband-diags"], ["4: ACTIVE"], ["ibstatus"], sends=False, what="the page of the device"),
    Program("ibv_devinfo", ["ibverbs-utils"], ["PORT_ACTIVE", "GID[  3]"], ["ibv_devinfo", "-v"], sends=False,
            what="all attributes"),
    *[pingpong(kind) for kind in ("rc", "uc", "ud", "srq")],
    *[pingpong("rc", *demand) for demand in ((["-o"], "memory on demand"), (["-O", "-P"], "implicit memory on demand"))],
    perftest("write_bw", "RDMA WRITEs of 64 KiB"),
    perftest("read_bw", "RDMA READs of 64 KiB"),
    perftest("send_bw", "SENDs of 64 KiB"),
    perftest("atomic_bw", "atomic operations"),
    perftest("write_lat", "round trips of RDMA WRITEs, polled in memory", loss=False, memcheck=SLOW),
    perftest("send_lat", "round trips of SENDs", loss=False, memcheck=SLOW),
    connected("rping", ["rping", "-s", "-a", "127.0.0.1", "-C", "30", "-V"],
              ["rping", "-c", "-a", "127.0.0.1", "-v", "-C", "30", "-V"], ["ping data: rdma-ping-29:"],
              "30 rounds of RDMA READ and WRITE, validated"),
    connected("ucmatose", ["ucmatose", "-c", "20", "-C", "20", "-S", "9000"],
              ["ucmatose", "-s", "127.0.0.1", "-c", "20", "-C", "20", "-S", "9000"], ["test complete", "return status 0"],
              "20 connections with 20 messages each", loss=False),
    connected("udaddy", ["udaddy", "-C", "10", "-S", "1000"], ["udaddy", "-s", "127.0.0.1", "-C", "10", "-S", "1000"],
              ["test complete", "return status 0"], "datagrams to an address of the connection manager", loss=False),
    connected("rdma_client", ["rdma_server"], ["rdma_client", "-s", "127.0.0.1"], ["rdma_client: end 0"],
              "one message each way"),
    connected("rdma_xclient", ["rdma_xserver", "-c", "x"], ["rdma_xclient", "-s", "127.0.0.1", "-c", "x"],
              ["rdma_xclient: end 0"], "one message each way over XRC"),
    connected("cmtime", ["cmtime", "-b", "127.0.0.1", "-c", "200"], ["cmtime", "-s", "127.0.0.1", "-c", "200"],
              ["disconnect", "destroy"], "200 connections are made and ended", ends=False),
    connected("rstream", ["rstream", "-T", "v", "-C", "1000", "-S", "65536"],
              ["rstream", "-s", "127.0.0.1", "-T", "v", "-C", "1000", "-S", "65536"], ["64k"],
              "1000 messages of 64 KiB over rsockets, verified",
              speeds=[Speed("bandwidth", r"custom\s+64k\s.*\ds\s+([\d.]+)",
                            command=["rstream", "-T", "s", "-T", "v", "-C", "1000", "-S", "65536"],
                            client=["rstream", "-s", "127.0.0.1", "-T", "s", "-T", "v", "-C", "1000", "-S", "65536"], port=7471)]),
    connected("riostream", ["riostream", "-T", "v", "-C", "200", "-S", "65536"],
              ["riostream", "-s", "127.0.0.1", "-T", "v", "-C", "200", "-S", "65536"], ["64k"],
              "200 RDMA WRITEs of 64 KiB over rsockets, verified"),
    Program("rcopy", ["rdmacm-utils"], ["64 MiB are equal"], ["bash", "-c", "rm -f {build}/copy; rcopy"],
            ["bash", "-euc", "head -c 67108864 /dev/urandom >{build}/original; rcopy {build}/original 127.0.0.1:{build}/copy; "
                             "cmp {build}/original {build}/copy; echo 64 MiB are equal"],
            DEVICE, what="a file of 64 MiB, compared"),
    connected("fio", ["fio", "--name=s", "--rw=read", *FIO],
              ["fio", "--name=c", "--rw=write", *FIO, "--verb=write", "--hostname=127.0.0.1"], ["err= 0", "total=0,1024,0,0"],
              "64 MiB in RDMA WRITEs of 64 KiB, 16 in flight", packages=["fio"]),
    Program("qperf", ["qperf"], ["rc_bw:", "rc_lat:"], ["qperf"],
            [*QPERF, "-cm1", "-uu", "127.0.0.1", "-m", "64K", "rc_bw", "-m", "1", "rc_lat"], 19765, loss=False,
            speeds=[Speed("bandwidth", r"bw\s+=\s+(\d+) bytes", client=[*QPERF, "-uu", "127.0.0.1", "-m", "64K", "tcp_bw"]),
                    Speed("latency", r"latency\s+=\s+(\d+) ns", client=[*QPERF, "-uu", "127.0.0.1", "-m", "1", "tcp_lat"])],
            what="bandwidth at 64 KiB and latency over connections of librdmacm"),
    ucx_perftest("ucx_perftest, RC", "rc_verbs,ud_verbs:aux", ["-t", "tag_bw", "-s", "65536", "-n", "2000", "-w", "100"],
                 speeds=[Speed("bandwidth", UCX_BANDWIDTH, environment=UCX_TCP)]),
    ucx_perftest("ucx_perftest, latency", "rc_verbs,ud_verbs:aux", ["-t", "tag_lat", "-s", "8", "-n", "2000", "-w", "200"],
                 speeds=[Speed("latency", UCX_LATENCY, environment=UCX_TCP)], loss=False),
    ucx_perftest("ucx_perftest, asleep", "rc_verbs,ud_verbs:aux",
                 ["-E", "sleep", "-t", "tag_lat", "-s", "8", "-n", "2000", "-w", "200"],
                 speeds=[Speed("latency", UCX_LATENCY, environment=UCX_TCP)], loss=False,
                 note="; both sides sleep until an event"),
    ucx_perftest("ucx_perftest, UD", "ud_verbs", ["-t", "tag_bw", "-s", "65536", "-n", "2000", "-w", "100"],
                 speeds=[Speed("bandwidth", UCX_BANDWIDTH, environment=UCX_TCP)], loss=False),
    ucx_perftest("ucx_perftest, memory on demand", "rc_verbs,ud_verbs:aux",
                 ["-t", "ucp_put_bw", "-s", "65536", "-n", "1000", "-w", "100"], loss=False,
                 environment={"UCX_IB_REG_METHODS": "odp,direct"}, statuses=(0, 139, -signal.SIGSEGV),
                 no_memcheck="it crashes in UCX, and valgrind reports that crash",
                 note="; Debian's UCX crashes in its own `uct_ib_md_close` after that"),
    ucx_perftest("ucx_perftest, error handling", "rc_verbs,ud_verbs:aux",
                 ["-e", "-t", "tag_bw", "-s", "65536", "-n", "1000", "-w", "100"], loss=False),
    ucx_peer_killed("recv", "the client is killed before it receives"),
    ucx_peer_killed("send", "the server is killed before it sends"),
    ucx_peer_killed("keepalive", "the client is killed while nothing is sent"),
    Program("io_demo", ["ucx-utils"], ["Client exit with status 'OK'"], ["io_demo", "-p", "1338", "-q", "-d", "1:300000"],
            ["io_demo", "-p", "1338", "-q", "-d", "1:300000", "-i", "100", "-o", "read,write", "127.0.0.1"], 1338,
            environment={**UCX, "UCX_TLS": "rc_verbs,ud_verbs,tcp"}, what="UCX: reads and writes of up to 300 kB, validated"),
    # Without loss: after the last message of a size it reads TCP and not its queues. Then libfabric retransmits nothing.
    Program("fi_pingpong", ["libfabric-bin"], ["64k"],
            ["fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-c", "-I", "100"],
            ["fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-c", "-I", "100", "127.0.0.1"], 47592, ends=True, loss=False,
            what="libfabric: reliable messages over datagrams, up to 1 MiB, validated"),
    dapl("dtest", ["-P", PROVIDER, "-b", "65536"], ["-P", PROVIDER, "-b", "65536", "-h", "127.0.0.1"], ["PASSED"], 15828,
         what="RDMA writes, reads and messages of 64 KiB, verified"),
    dapl("dtestsrq", ["-P", PROVIDER], ["-P", PROVIDER, "-h", "127.0.0.1"], ["SRQ Test Complete"], 46248,
         what="messages that two endpoints receive from one queue"),
    dapl("dapltest", ["-T", "S", "-D", PROVIDER],
         ["-T", "T", "-s", "127.0.0.1", "-D", PROVIDER, "-i", "20", "-t", "2", "-w", "2", "client", "SR", "4096", "2",
          "server", "SR", "4096", "2"],
         ["Total WQE"], 63000, statuses=None, what="2 threads with 2 endpoints each, 20 messages of 4 KiB"),
    mpi("MPICH", "mpirun.mpich", "mpicc.mpich", ["mpich", "libmpich-dev"]),
    mpi("Open MPI (UCX)", "mpirun.openmpi", "mpicc.openmpi", ["openmpi-bin", "libopenmpi-dev"], OPENMPI_ROOT,
        ["--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx"]),
    Program("Open MPI (OpenSHMEM)", ["openmpi-bin", "libopenmpi-dev"], ["all data is right"],
            ["oshrun", "-n", "2", "--oversubscribe", "{build}/shmem"],
            build=[["oshcc", "-O1", "-o", "{build}/shmem", str(HERE / "shmem.c")]],
            environment={**UCX, **OPENMPI_ROOT}, statuses=(0, 139),
            what="a put to the next element; Debian's build crashes in `shmem_finalize`, over TCP too"),
    Program("mpi4py", ["python3-mpi4py", "openmpi-bin"], ["rank 0 has what was sent", "rank 1 has what was sent"],
            ["mpirun.openmpi", "--oversubscribe", "-n", "2", "--mca", "pml", "ucx", PYTHON,
             str(HERE.parent / "tests/dropin/mpi.py")],
            environment={**UCX, **OPENMPI_ROOT}, what="Python: messages, collectives and one-sided operations, compared"),
    # Without files, and processes that start others. test_win: Open MPI unmaps detached memory twice and crashes, over TCP too.
    # Without loss: Open MPI replaces memory by a READ and a WRITE, and the READ is executed again if its response is lost.
    Program("mpi4py, its tests", ["python3-mpi4py", "openmpi-bin"], ["OK (skipped="],
            ["mpirun.openmpi", "--oversubscribe", "-n", "3", "--mca", "pml", "ucx", "--mca", "osc", "ucx", PYTHON,
             "{sources}/mpi4py-3.1.4/test/runtests.py", "--no-builddir",
             *(f"--exclude=test_{name}" for name in ("dynproc", "file", "io", "spawn", "win"))],
            environment={**UCX, **OPENMPI_ROOT}, source="mpi4py==3.1.4", by_name=True, loss=False,
            limit_s=400,
            what="its own tests of messages, collectives and one-sided operations between 3 ranks"),
    # It has a UCX of its own. Without `MPIR_CVAR_NOLOCAL`, most messages stay in memory of its own; with it, the tests of
    # topologies wait forever, over TCP too. The lock of mpi4py.util.sync clears its link without a flush before others
    # can set it, and on a busy machine two ranks wait for each other.
    Program("MPICH 5", ["python3-venv"], ["OK (skipped="],
            ["{bin}/mpiexec", "-n", "2", "{python}", "{sources}/mpi4py-4.1.2/test/main.py",
             *(word for name in ("comm_topo", "dynproc", "file", "io", "mpiabi", "spawn", "util_sync")
               for word in ("-x", f"test_{name}"))],
            wheels=["mpich==5.0.2", "mpi4py==4.1.2"], source="mpi4py==4.1.2",
            environment={"UCX_TLS": "rc_verbs,ud_verbs,self", "MPIR_CVAR_NOLOCAL": "1"}, loss=False, by_name=True,
            limit_s=400, what="the tests of mpi4py between 2 ranks, with all messages through UCX"),
    Program("mpi4py (libfabric)", ["libfabric1", "python3-mpi4py", "openmpi-bin"],
            ["rank 0 has what was sent", "rank 1 has what was sent"],
            ["mpirun.openmpi", "--oversubscribe", "-n", "2", "--mca", "pml", "cm", "--mca", "mtl", "ofi",
             "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxd", PYTHON, str(HERE.parent / "tests/dropin/mpi.py")],
            environment=OPENMPI_ROOT,
            what="Python: messages of up to 1 MiB and collectives over libfabric's reliable datagrams, compared"),
    Program("pyverbs", ["python3-pyverbs"], ["all data is right"], [PYTHON, str(HERE / "exchange.py")],
            what="Python: SEND, RDMA WRITE and READ of up to 1 MB, and atomics, between two processes; every byte compared"),
    Program("ctypes", ["python3", "libibverbs1"], ["all data is right"], [PYTHON, str(HERE / "foreign.py")],
            what="Python without a binding: the C functions of verbs by `ctypes`; every byte compared"),
    mpi("MPICH, 8 ranks", "mpirun.mpich", "mpicc.mpich", ["mpich", "libmpich-dev"], ranks=8, by_name=True),
    mpi("Open MPI, 8 ranks", "mpirun.openmpi", "mpicc.openmpi", ["openmpi-bin", "libopenmpi-dev"], OPENMPI_ROOT,
        ["--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx"], ranks=8, by_name=True),
    Program("QEMU", ["qemu-system-x86", "binutils"], ["the guest goes on"],
            [PYTHON, str(HERE / "migrate.py"), "{build}/guest", "{build}"],
            build=[["as", "--32", "-o", "{build}/guest.o", str(HERE / "guest.s")],
                   ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary", "-e", "_start", "-o", "{build}/guest",
                    "{build}/guest.o"]],
            by_name=True, loss=False, what="live migration over RDMA of a guest of 64 MiB that writes and checks 32 MiB all the time",
            no_memcheck="its guest writes faster than QEMU migrates it then: the migration had not ended after 200 s and 370 MB"),
    Program("Go", ["golang-go", "gcc", "libibverbs-dev"], ["all data is right"], ["{build}/go"],
            build=[["env", "GOCACHE={build}/go-cache", "GO111MODULE=off", "go", "build", "-o", "{build}/go",
                    str(HERE / "go/main.go")]],
            by_name=True, what="8 goroutines by cgo, a queue pair each; every byte compared"),
    Program("Java", ["openjdk-17-jdk-headless", "gcc", "libibverbs-dev"], ["all data is right"],
            ["java", "-Xcheck:jni", "-Djava.library.path={build}", "-cp", "{build}", "Exchange"],
            build=[["javac", "-d", "{build}", str(HERE / "java/Exchange.java")],
                   ["sh", "-c", "home=$(dirname $(dirname $(readlink -f $(command -v javac)))); gcc -shared -fPIC -O1 "
                    f"-I$home/include -I$home/include/linux -o {{build}}/libexchange.so {HERE}/java/exchange.c -libverbs"]],
            by_name=True, what="direct buffers by JNI, while the virtual machine handles SIGSEGV; every byte compared",
            memcheck=Memcheck("after a null pointer it goes on with the registers that its handler of SIGSEGV finds. valgrind's "
                              "are up to date with that option only, and in code of tier 3 not even then, with softroce or "
                              "without", ("--vex-iropt-register-updates=allregs-at-mem-access",),
                              {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"})),
    example(IBVERBS, "loopback", [], None, ["sent", "received"], "a queue pair that is connected to itself, at GID index 1"),
    *[example(SIDEWAY, name, ["-n", "1000"], [name, "-n", "1000", "127.0.0.1"], ["1000 iters"],
              "1000 messages by `ibv_wr_*` and `ibv_start_poll`", port=18515, loss=False)
      for name in ("rc_pingpong", "rc_pingpong_split")],
    example(SIDEWAY, "cmtime", ["-c", "100"], ["cmtime", "-c", "100", "-s", "127.0.0.1"], ["Connect", "Disconnect"],
            "100 connections of librdmacm are made and ended", port=DEVICE),
    example(ASYNC_RDMA, "server", [], ["client"], ["client done"], "messages, RDMA READ and WRITE, and atomics, verified",
            port=5555, ends=True),
    example(ASYNC_RDMA, "rpc", [], None, ["response: hello", "response: world"],
            "calls by messages, and by RDMA READ and WRITE"),
    example(ASYNC_RDMA, "cm_server", [], ["cm_client", "127.0.0.1", "7471"], ["cm_client: end"],
            "a message each way over a connection of librdmacm", port=DEVICE, ends=True),
    Program("Ceph", ["ceph-osd", "ceph-mon", "ceph-common", "python3"], ["all objects are read after the loss of an OSD"],
            [str(HERE / "ceph.sh"), "{build}", "4"], by_name=True, loss=False,
            what="`ms_type = async+rdma`: one monitor and three OSDs of which one is killed and comes back; `rados bench` "
                 "writes and reads, and compares",
            no_memcheck="its monitor and OSDs have not found each other after 240 s then"),
    Program("NIXL", ["python3-venv"], ["all data is right"], ["{python}", str(HERE / "agents.py")], environment=UCX,
            wheels=["nixl==1.5.1"], by_name=True,
            what="three agents that write to and read from each other 1 MiB each; every byte compared"),
    Program("Mooncake", ["python3-venv"], ["all data is right"], ["{python}", str(HERE / "engines.py")],
            environment={"MC_GID_INDEX": "0"}, wheels=["mooncake-transfer-engine-non-cuda==0.3.13.post1"], by_name=True,
            what="three transfer engines that write to and read from each other 1 MiB each; every byte compared"),
]
