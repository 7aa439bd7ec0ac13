"""Waits until the process that started it has ended, then removes what that left behind.

Run as a program: folder PATH | cgroup PATH-PREFIX | docker LABEL, as pairs of arguments.
"""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import time


def remove_folder(path: str) -> None:
    """Unmount what is mounted under `path`, then remove it."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        mounts = [line.split()[1] for line in file if line.split()[1].startswith(f"{path}/")]
    for mount in reversed(mounts):
        subprocess.run(["umount", "-l", mount], check=False)
    subprocess.run(["chmod", "-R", "u+rwx", path], check=False)
    subprocess.run(["rm", "-rf", path], check=False)


def remove_cgroups(prefix: str) -> None:
    """Kill what still runs in the groups, then remove them."""
    for _ in range(50):
        for folder in glob.glob(f"{prefix}*"):
            try:
                with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
                    for pid in file.read().split():
                        os.kill(int(pid), 9)
                os.rmdir(folder)
            except OSError:
                pass
        if not glob.glob(f"{prefix}*"):
            return
        time.sleep(0.05)


def remove_containers(label: str) -> None:
    """Remove the containers, and the images made of them, that carry the label."""
    import docker

    client = docker.from_env()
    for container in client.containers.list(all=True, filters={"label": label}):
        container.remove(force=True, v=True)
    for image in client.images.list(filters={"label": label}):
        client.images.remove(image.id, force=True)


if __name__ == "__main__":
    sys.stdin.buffer.read()  # ends when the other end of the pipe is closed, however its process ended
    work = {"folder": remove_folder, "cgroup": remove_cgroups, "docker": remove_containers}
    for kind, what in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        work[kind](what)
