"""The system calls that no sandbox may make, as a seccomp filter.

Inside, root holds capabilities over its own namespaces only. What is refused here are the doors behind
which the kernel was wrong before: further user namespaces, and calls that take programs or keys into the
kernel. Docker's default profile refuses the same ones.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache

_CLONE_NEWUSER = 0x10000000
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
# machine: (audit architecture, clone, unshare, the refused calls). Numbers from the kernel's tables.
_MACHINES = {
    "x86_64": (0xC000003E, 56, 272, (248, 249, 250, 298, 321, 323, 425, 426, 427)),
    "aarch64": (0xC00000B7, 220, 97, (217, 218, 219, 241, 280, 282, 425, 426, 427)),
}  # refused: add_key, request_key, keyctl, perf_event_open, bpf, userfaultfd, io_uring_{setup,enter,register}
_CLONE3 = 435  # its flags lie behind a pointer; C libraries fall back to clone
_X32 = 0x40000000


@lru_cache(maxsize=1)
def program() -> bytes:
    """The filter as classic BPF, for bubblewrap's --seccomp; empty on a machine whose numbers are not
    known."""
    known = _MACHINES.get(os.uname().machine)
    if known is None:
        return b""
    architecture, clone, unshare, refused = known
    number, arch, argument = 0, 4, 16  # offsets into struct seccomp_data

    def load(offset: int) -> bytes:
        return struct.pack("=HBBI", 0x20, 0, 0, offset)

    def jump(code: int, value: int, yes: int, no: int) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    def answer(value: int) -> bytes:
        return struct.pack("=HBBI", 0x06, 0, 0, value)

    equal, at_least, bits = 0x15, 0x35, 0x45
    lines = [load(arch), jump(equal, architecture, 1, 0), answer(_ERRNO | _ENOSYS), load(number)]
    lines += [jump(at_least, _X32, 0, 1), answer(_ERRNO | _ENOSYS)]
    lines += [jump(equal, _CLONE3, 0, 1), answer(_ERRNO | _ENOSYS)]
    for call in refused:
        lines += [jump(equal, call, 0, 1), answer(_ERRNO | _EPERM)]
    lines += [jump(equal, clone, 1, 0), jump(equal, unshare, 0, 3)]
    lines += [load(argument), jump(bits, _CLONE_NEWUSER, 0, 1), answer(_ERRNO | _EPERM), answer(_ALLOW)]
    return b"".join(lines)
