"""A Python and a bash that run in any sandbox and that no episode can write to.

They are the service's own, copied once per user into a folder that every sandbox gets read-only at PLACE.
Nothing of theirs is looked for elsewhere: the copies name the folder's loader as their interpreter, and
that loader knows no other place for libraries, so that neither another C library in the image nor a
poisoned one has a say.
"""

from __future__ import annotations

import hashlib
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from sandbox.errors import InputError

PLACE = "/.t1"
PYTHON = f"{PLACE}/bin/python3"
BASH = f"{PLACE}/bin/bash"
SUPERVISOR = [PYTHON, "-I", "-S", f"{PLACE}/supervisor.pyc"]
_SOURCE = Path(__file__).with_name("supervisor.py")
_SKIPPED = ("site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3",
            "ensurepip", "config-*", "pydoc_data", "*.opt-?.pyc", "_tkinter*", "_test*")  # fmt: skip
# Where a loader looks by itself; every name gets one of the same length inside PLACE.
_SEARCHED = re.compile(rb"(?<=\0)(?:/usr)?/lib(?:64|32)?/(?:[\w]+-linux-gnu[\w]*/)?(?=\0)")
_CONFIGURED = re.compile(rb"/etc/(?=ld\.so\.(?:cache|preload|nohwcap)\0)")


@lru_cache(maxsize=1)
def toolchain() -> Path:
    """The folder; the first call of a user on a machine makes it, in about two seconds. Blocking.

    Raises InputError when it cannot be made.
    """
    program = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    facts = [
        sys.version,
        str(program),
        str(program.stat().st_mtime_ns),
        _SOURCE.read_text(),
        Path(__file__).read_text(),
    ]
    name = f"toolchain-{hashlib.sha256(chr(0).join(facts).encode()).hexdigest()[:16]}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # As root it is mounted by an unprivileged user, who cannot reach root's home.
    cache = Path("/var/cache/t1-jax") if os.geteuid() == 0 else home / "t1-jax"
    try:
        if not (cache / name).is_dir():
            cache.mkdir(parents=True, exist_ok=True)
            cache.chmod(0o755)
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache) as building:
                folder = Path(building) / "toolchain"
                _build(folder, program)
                try:
                    folder.rename(cache / name)
                except OSError:
                    if not (cache / name).is_dir():  # else another process was quicker
                        raise
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(f"sandbox toolchain {cache / name}: cannot be made ({error})") from error
    if (cache / name).stat().st_uid != os.geteuid():
        raise InputError(
            f"sandbox toolchain {cache / name}: it belongs to another user, expected one of ours"
        )
    return cache / name


def _build(folder: Path, program: Path) -> None:
    standard = Path(os.__file__).parent
    for part in ("bin", "lib", "link"):  # link: where a container mounts its control socket
        (folder / part).mkdir(parents=True)
    shutil.copytree(
        standard, folder / "lib" / standard.name, symlinks=False, ignore=shutil.ignore_patterns(*_SKIPPED)
    )
    bash = shutil.which("bash", path="/usr/bin:/bin")
    if not bash:
        raise OSError("bash is missing in /usr/bin and /bin")
    shutil.copy2(bash, folder / "bin/bash")
    shutil.copy2(program, folder / "bin" / standard.name)
    for link in ("python", "python3"):
        (folder / "bin" / link).symlink_to(standard.name)
    modules = [path for path in (folder / "lib" / standard.name / "lib-dynload").glob("*.so")]
    loader = _copy_libraries([program, Path(bash), *modules], folder / "lib")
    (folder / "lib" / loader.name).rename(folder / "ld.so")
    for path in (folder / "ld.so", *folder.glob("bin/*"), *folder.rglob("*.so*")):
        if path.is_file() and not path.is_symlink():
            _relocate(path, str(loader), program.parents[1] / "lib")
    py_compile.compile(
        str(_SOURCE), str(folder / "supervisor.pyc"), f"{PLACE}/supervisor.py", doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )  # fmt: skip
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _copy_libraries(programs: list[Path], into: Path) -> Path:
    """Copy every library that the programs load; returns the loader's path as the programs name it."""
    loader = None
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    for line in listed.stdout.splitlines():
        found = re.match(r"\s*(\S+)(?: => (\S+))? \(0x", line)
        if not found or found[1].startswith("linux-"):
            continue
        name, path = found[1], found[2] or found[1]
        if name.startswith("/"):  # the loader alone is named by its path
            loader, name = Path(name), Path(name).name
        if not (into / name).exists():
            shutil.copy2(path, into / name)
    if loader is None:
        raise OSError(f"{programs[0]} is not a dynamically linked glibc program")
    return loader


def _relocate(path: Path, loader: str, libraries: Path) -> None:
    """Rewrite in place, keeping every length, where a program finds its loader and a loader its libraries."""
    data = path.read_bytes()
    if data[:4] != b"\x7fELF":
        return
    before, inside = data, f"{PLACE}/lib".encode()
    data = data.replace(
        b"\0" + loader.encode() + b"\0", b"\0" + f"{PLACE}/ld.so".encode().ljust(len(loader) + 1, b"\0")
    )
    home = str(libraries).encode()
    data = data.replace(home + b"\0", inside.ljust(len(home), b"/") + b"\0")
    if path.name == "ld.so":
        data = _CONFIGURED.sub(f"{PLACE}/".encode(), data)
        data = _SEARCHED.sub(
            lambda m: (inside if len(m[0]) > len(inside) else PLACE.encode()).ljust(len(m[0]), b"/"), data
        )
    if data != before:
        path.write_bytes(data)
