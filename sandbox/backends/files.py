"""The files of a bubblewrap sandbox, seen from the host.

skeleton/   shared, read-only: what every sandbox's / starts from (lower layer)
<sandbox>/
  root/     what the episode changed under / (upper layer)
  usr/      what it changed under /usr, whose lower layer is the host's /usr
  local/    /usr/local, private: the host's is not shown
  tests/ logs/   while the tests run: /tests and /logs/verifier
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath

from sandbox.backends.lease import mount_memory, remove_tree
from sandbox.backends.network import RESOLVER
from sandbox.errors import InputError
from sandbox.task import Task, read_recipe

SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FOLDERS = (
    "dev", "etc/alternatives", "home", "mnt", "opt", "proc", "root", "run", "srv", "tmp", "usr", "var/lib",
    "var/log", "var/tmp",
)  # fmt: skip
_ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "hostname": "sandbox\n",
    "shells": "/bin/sh\n/bin/bash\n",
}
_WRITABLE_ETC = ("ld.so.preload", "ld.so.cache", "alternatives")  # what decides which program runs


def build_skeleton(folder: Path, owner: int) -> None:
    """Make the shared lower layer of /, owned by `owner` (a host uid and gid)."""
    for name in _FOLDERS:
        (folder / name).mkdir(parents=True)
    for name in ("tmp", "var/tmp"):
        (folder / name).chmod(0o1777)
    for name, text in _ETC.items():
        (folder / "etc" / name).write_text(text)
    cache = Path("/etc/ld.so.cache")
    (folder / "etc/ld.so.cache").write_bytes(cache.read_bytes() if cache.is_file() else b"")
    if Path("/etc/alternatives").is_dir():
        shutil.copytree("/etc/alternatives", folder / "etc/alternatives", symlinks=True, dirs_exist_ok=True)
    for name in SYSTEM:
        host = Path("/", name)
        if host.is_symlink():
            (folder / name).symlink_to(os.readlink(host))
        elif host.is_dir():
            (folder / name).mkdir()
    own(folder, owner)


def own(path: Path, owner: int) -> None:
    """Give a tree to a host uid, where this process may."""
    if os.geteuid() == 0:
        os.chown(path, owner, owner, follow_symlinks=False)
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                os.chown(os.path.join(folder, name), owner, owner, follow_symlinks=False)


class SandboxFiles:
    """One sandbox's folders. storage_mb: the size of all that it writes, None where it cannot be bounded."""

    def __init__(self, task: Task, folder: Path, owner: int, storage_mb: int | None) -> None:
        self._task = task
        self._owner = owner
        self.folder = folder
        if storage_mb:
            mount_memory(folder, storage_mb)
        self.root, self.usr, self.local = folder / "root", folder / "usr", folder / "local"
        self.tests, self.logs = folder / "tests", folder / "logs"

    def build(self) -> None:
        """Copy what the task's Dockerfile copies. Blocking.

        Raises InputError when it asks for more than that, or for a place that is not the sandbox's.
        """
        recipe = read_recipe(self._task.path / "environment")
        if recipe.unsupported:
            raise InputError(
                f"task {self._task.name}: environment/Dockerfile line {recipe.unsupported!r} needs an image "
                "build, expected only FROM, WORKDIR, COPY and ENV for bubblewrap; use the docker backend"
            )
        for name in ("root", "root.work", "usr", "usr.work", "local"):
            (self.folder / name).mkdir(mode=0o755)
        for name in ("bin", "sbin", "lib", "share"):
            (self.local / name).mkdir()
        self.path(self._task.workdir).mkdir(parents=True, exist_ok=True)
        for sources, destination in recipe.copies:
            for source in sources:
                self._copy(source, destination)
        if self._task.allow_network:
            etc = self.root / "etc"
            etc.mkdir(exist_ok=True)
            (etc / "resolv.conf").write_text(RESOLVER)
            (etc / "nsswitch.conf").write_text(
                _ETC["nsswitch.conf"].replace("hosts: files", "hosts: files dns")
            )
        for place in (self.root, self.usr, self.local):
            own(place, self._owner)
        for name in ("root.work", "usr.work"):
            own(self.folder / name, self._owner)

    def path(self, inside: str) -> Path:
        """Where on the host a path of the sandbox lies, before it starts or when nothing in it runs."""
        parts = PurePosixPath(inside).parts[1:]
        if parts[:2] == ("usr", "local"):
            return self.local.joinpath(*parts[2:])
        if not parts or ".." in parts or parts[0] in (*SYSTEM, "usr", "proc", "dev", ".t1"):
            raise InputError(
                f"task {self._task.name}: {inside!r} cannot be written to, expected a path outside /usr"
            )
        return self.root.joinpath(*parts)

    def _copy(self, source: Path, destination: str) -> None:
        """As COPY does: a folder's content, or a file, into a destination that ends in / or is a folder."""
        if destination.rstrip("/") == "" and source.is_dir():
            shutil.copytree(source, self.root, symlinks=True, dirs_exist_ok=True)
            return
        target = self.path(destination)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            return
        if destination.endswith("/") or target.is_dir():
            target /= source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)

    def seal(self) -> None:
        """Undo what an episode may have planted against the tests. Its processes are dead: nothing can race.

        Of / the layers' names that lead to programs and libraries go back to the skeleton's, no library is
        preloaded, and whatever stood in the tests' places is gone. /usr is put right by `Layers` when it is
        mounted: the host's files lie above the episode's.
        """
        for name in (*SYSTEM, "usr", "proc", "dev", "solution", ".t1", "tests", "logs"):
            remove_tree(self.root / name)
        etc = self.root / "etc"
        if etc.is_symlink() or not etc.is_dir():
            remove_tree(etc)
        for name in _WRITABLE_ETC:
            remove_tree(etc / name)
        for name in ("root.work", "usr.work", "verify", "verify.work", "tests", "logs"):
            remove_tree(self.folder / name)
        for name in ("root.work", "verify", "verify.work", "logs"):
            (self.folder / name).mkdir(mode=0o755)
            own(self.folder / name, self._owner)
        shutil.copytree(self._task.path / "tests", self.tests, symlinks=True)

    def remove(self) -> None:
        """Remove everything. Blocking."""
        remove_tree(self.folder)
