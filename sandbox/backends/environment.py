"""What is the same in every sandbox, whatever its backend: variables, limits, how tests are started."""

from __future__ import annotations

from sandbox.backends.toolchain import BASH, PLACE
from sandbox.task import Task

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {
    "PATH": PATH, "HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash", "TERM": "dumb",
    "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}  # fmt: skip
# Of the tests: programs that no episode can write come first. /usr/local is left out, it is the episode's.
TESTS_ENVIRONMENT = {
    "PATH": f"{PLACE}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE": "1",
    "T1_OWN_PROCESSES": "1",  # a PID namespace of their own: the tests' runner may kill all that it sees
}  # fmt: skip
MAX_PROCESSES, MAX_FILE_MB = 512, 1024
DEFAULT_MEMORY_MB = 4096  # of a task that names no limit; a hog must not take the host along


def tests_command(task: Task, limits: str) -> list[str]:
    """Runs tests/test.sh in the task's workdir, by a bash that the episode could not touch."""
    script = f'{limits} cd -- "$1" 2>/dev/null || cd /; exec {BASH} /tests/test.sh'
    return [BASH, "--norc", "-c", script, "bash", task.workdir]
