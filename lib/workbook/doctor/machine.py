"""Memory, disk, folders, ports, limits and the clock of a node."""

from collections.abc import Callable

from workbook.doctor.check import Asked, failed, not_applicable, ok, warning
from workbook.doctor.facts import FolderFacts, NodeFacts
from workbook.types import DoctorCheck

# The toy server on a CPU took 1.75 GB at its start (SGLang 0.5.23, measured); less than this is enough for nothing.
MIN_MEMORY_GIB = 2.0
# Margins of ours for a run's caches, logs and records, not measured.
MIN_FREE_GB, LOW_FREE_GB = 1.0, 5.0
# What NCCL's documentation gives a container: --shm-size=1g ("Runtime and MPI issues", shared memory).
MIN_SHM_GIB = 1.0
# SGLang's server and benchmark raise the soft limit to this where the hard one lets them (`set_ulimit`).
SGLANG_FILES = 65535
# Beside a socket a request: libraries, logs, sockets between ranks. A margin of ours, not measured.
OTHER_FILES = 1024
# A log line is placed by the node's clock, a run by this machine's.
MAX_SKEW_S = 1.0

# Locks and mapped libraries on these are slow or wrong, and a cache there is shared by every machine that mounts it.
NETWORK = {
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gpfs", "lustre",
    "nfs", "nfs4", "smb3", "smbfs", "wekafs",
}  # fmt: skip
# What moves each folder.
MOVED_BY = {
    "FlashInfer": "FLASHINFER_WORKSPACE_BASE",
    "Triton": "TRITON_CACHE_DIR",
    "Inductor": "TORCHINDUCTOR_CACHE_DIR",
    "SGLang": "SGLANG_CACHE_DIR",
}


def memory(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    said = f"{facts.available_gib:.1f} of {facts.memory_gib:.1f} GiB available"
    needed = f"{MIN_MEMORY_GIB:g} GiB for the smallest server"
    if facts.available_gib < MIN_MEMORY_GIB:
        remedy = "End what you no longer need there (ps aux --sort=-rss), or give the container more memory."
        return failed("host memory", said, needed, remedy)
    return ok("host memory", said, needed)


def folder(found: FolderFacts, asked: Asked) -> DoctorCheck:
    """The verdict on one folder: the work folder, with the caches of every server, or one that else would be used."""
    name = "work folder" if found.purpose == "work" else f"{found.purpose} cache"
    said = f"{found.path}: {found.file_system or 'unknown file system'}, {found.free_gb:.1f} GB free"
    needed, refuse = "writable, executable, on a local disk", failed
    if found.purpose != "work":  # servers of the workbook keep their caches in the work folder
        refuse = warning
        move = f"Set {MOVED_BY[found.purpose]} to a folder on a local disk {asked.env_hint}."
    elif asked.node.kind == "local":
        move = "Let WORKBOOK_STACKS name a folder on a local disk."
    else:
        move = f"Name a folder on a local disk at work: in {asked.description}."
    for wrong, why in (
        (not found.writable, "not writable"),
        (found.file_system in NETWORK, "on a network file system"),
        (found.noexec, "mounted noexec, so that no compiled kernel loads from it"),
        (found.free_gb < MIN_FREE_GB, "full"),
    ):
        if wrong:
            return refuse(name, f"{said}; {why}", needed, move)
    if found.free_gb < LOW_FREE_GB:
        return warning(name, said, f"{LOW_FREE_GB:g} GB free", f"Make room there. {move}")
    return ok(name, said, needed)


def shared_memory(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name, needed = "/dev/shm", f"{MIN_SHM_GIB:g} GiB for NCCL between ranks"
    ranks = asked.profile.tp if asked.profile else len(facts.visible)
    if ranks < 2:
        return not_applicable(name, "one rank at most" if asked.profile is None else "tp 1")
    if facts.shm_gib is None or facts.shm_free_gib is None:
        return failed(name, "not there", needed, "Mount a tmpfs at /dev/shm.")
    said = f"{facts.shm_free_gib:.2f} of {facts.shm_gib:.2f} GiB free"
    if facts.shm_gib < MIN_SHM_GIB:
        remedy = "Start the container with --shm-size=16g, or run: mount -o remount,size=16g /dev/shm"
        return failed(name, said, needed, remedy)
    if facts.shm_free_gib < MIN_SHM_GIB:
        remedy = "Look for files that dead processes left: ls -l /dev/shm; remove those that are yours."
        return failed(name, said, needed, remedy)
    return ok(name, said, needed)


def port(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name, needed = "ports", "a free port on 127.0.0.1"
    if not facts.free_port:
        return failed(
            name, "no port is free", needed, "See what holds them: ss -tan | head; then run this again."
        )
    if not facts.default_port_free:
        return warning(
            name,
            "there are free ones; SGLang's default 30000 is taken",
            needed,
            "The workbook takes a free one by itself. ss -ltnp 'sport = :30000' shows whose it is: another server on "
            "this node changes what is measured.",
        )
    return ok(name, "there are free ones, SGLang's default 30000 among them", needed)


def open_files(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name, least = "open files", asked.concurrency + OTHER_FILES
    needed = f"{least} for {asked.concurrency} requests in flight"
    soft, hard = facts.files_soft, facts.files_hard
    liftable = hard is None or hard >= SGLANG_FILES
    said = f"limit {'none' if soft is None else soft}, hard limit {'none' if hard is None else hard}"
    if soft is None or soft >= least or (liftable and least <= SGLANG_FILES):
        return ok(
            name, said + ("; SGLang raises it itself" if soft is not None and soft < least else ""), needed
        )
    return failed(
        name,
        said,
        needed,
        f"Run ulimit -n {max(SGLANG_FILES, least)} in the shell that starts the workbook; on an ssh node set nofile "
        "in /etc/security/limits.conf, in a container give --ulimit nofile=65535.",
    )


def clock(facts: NodeFacts, asked: Asked) -> DoctorCheck:
    name, needed = "clock", f"within {MAX_SKEW_S:g} s of this machine's, to place log lines in a run"
    ahead, unsure = facts.clock.ahead_s, facts.clock.uncertainty_s
    said = f"{abs(ahead):.3f} s {'ahead' if ahead >= 0 else 'behind'}, ± {unsure:.3f} s"
    if abs(ahead) - unsure > MAX_SKEW_S:
        remedy = (
            "Let both machines keep time: timedatectl set-ntp true (or chronyc makestep) where it is wrong."
        )
        return warning(name, said, needed, remedy)
    return ok(name, said, needed)


Check = Callable[[NodeFacts, Asked], DoctorCheck]
CHECKS: tuple[Check, ...] = (memory, shared_memory, port, open_files, clock)
