"""What a backend leaves on the host while it works, and how it goes when the service does, however it ends.

A folder per process holds the sandboxes' files. Its lock is held as long as the process lives; a janitor, a
process of its own, waits for that end, then removes what is left: mounts, files, control groups, containers.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

MIN_MEMORY = 4 << 30
_PREFIX = "t1-sandbox-"
_JANITOR = Path(__file__).with_name("janitor.py")
# System calls that the C library of Debian 12 has no names for; the numbers are the same on every
# architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH, _OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = -100, 0x1000, 1, 4
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_IDMAP = 1, 0x00100000


def lease_folder(parent: Path | None = None) -> Path:
    """A folder for this process's sandboxes. Those of processes that were killed are removed meanwhile."""
    parent = parent or _fast_folder()
    threading.Thread(target=_sweep, args=(parent,), daemon=True).start()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Another's sweep may have been quicker.
        if _lock(folder) is not None and folder.is_dir():
            atexit.register(remove_tree, folder)
            return folder


def start_janitor(*what: str) -> subprocess.Popen:
    """A process that cleans up `what` (see janitor.py) when this one has ended. It is not in its process
    group, so that a signal to the group does not end both.
    """
    return subprocess.Popen(
        [sys.executable, "-I", str(_JANITOR), *what], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
    )  # fmt: skip


def mount_memory(folder: Path, size_mb: int) -> None:
    """A file system in memory at `folder`, of at most `size_mb` MiB. Needs root. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={size_mb}m,mode=0711,nr_inodes=1m".encode()
    if libc.mount(b"t1-sandbox", os.fsencode(folder), b"tmpfs", 0x2 | 0x4, options):  # nosuid, nodev
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(folder))


def mount_as(source: Path, folder: Path, uid: int, count: int) -> None:
    """Mount `source` at `folder` with its users 0, 1, ... shown as uid, uid + 1, ... (an id-mapped mount),
    read-only, so that whatever happens to the folder does not happen to the source.

    Needs root, Linux 5.12 and a file system that can. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(*arguments: object) -> int:
        result = libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(source))
        return int(result)

    tree = call(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), _OPEN_TREE_CLONE | os.O_CLOEXEC)
    try:
        with _user_namespace(uid, count) as namespace:
            attributes = struct.pack("=QQQQ", _MOUNT_ATTR_IDMAP | _MOUNT_ATTR_RDONLY, 0, 0, namespace)
            call(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, attributes, len(attributes))
        call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(folder), _MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


@contextlib.contextmanager
def _user_namespace(uid: int, count: int) -> Iterator[int]:
    """A descriptor of a user namespace whose users 0, 1, ... are uid, uid + 1, ... outside."""
    with subprocess.Popen(
        ["unshare", "--user", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin and holder.stdout
        holder.stdin.write(b"x")
        holder.stdin.flush()
        holder.stdout.read(1)  # it is in its namespace
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{holder.pid}/{kind}").write_text(f"0 {uid} {count}\n")
        namespace = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY)
        try:
            yield namespace
        finally:
            os.close(namespace)
            holder.stdin.close()


def remove_tree(path: Path) -> None:
    """Remove whatever is at `path`: a link itself, folders without permissions and mounts included."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        path.unlink()
        return
    _detach(path)
    with contextlib.suppress(OSError):
        shutil.rmtree(path)
        return
    os.chmod(path, 0o700)
    for folder, folders, _ in os.walk(path):  # top-down: each folder is opened up before its listing is read
        for name in folders:
            place = os.path.join(folder, name)
            if not os.path.islink(place):
                os.chmod(place, 0o700)
    shutil.rmtree(path)


def _detach(path: Path) -> None:
    """Unmount what is mounted at a folder or directly in it.

    Each is tried: nothing tells a mount of the same file system (the host's /usr) from a folder. No link is
    followed, for an episode may have planted it.
    """
    if os.geteuid() == 0:
        unmount = ctypes.CDLL(None).umount2
        inside = [Path(entry) for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
        for place in (*inside, path):
            while unmount(os.fsencode(place), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
                pass


def _fast_folder() -> Path:
    """Memory where there is plenty and overlays work on it (Linux 6.6), else the disk."""
    memory = Path("/dev/shm")
    if "TMPDIR" not in os.environ and memory.is_dir() and os.access(memory, os.W_OK):
        found = os.statvfs(memory)
        if not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= MIN_MEMORY:
            with tempfile.NamedTemporaryFile(dir=memory) as file, contextlib.suppress(OSError):
                os.setxattr(file.name, "user.t1", b"y")
                return memory
    return Path(tempfile.gettempdir())


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        lock = _lock(folder)
        if lock is not None:
            with contextlib.suppress(OSError):
                remove_tree(folder)
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """A descriptor that locks a folder; None when another process holds it, or another user owns it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
