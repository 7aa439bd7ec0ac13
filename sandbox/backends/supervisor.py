"""The program inside every sandbox: one persistent bash behind a real PTY, driven over a socket.

It runs as the sandbox's first process, from a toolchain that the episode cannot write, and imports nothing
but built-in modules: an episode that breaks its own system breaks its bash, not this, and a start costs
little. What ends a command, its exit code and the working directory come from bash over a pipe and from
wait(2); the terminal carries the programs' own bytes only. When a shell ends, for whatever reason, the next
one takes over what it last reported.

Messages are lists of byte fields (see `pack`). Requests: start(limits, directory, environment), run(seconds,
command), keys(bytes), look(), put(folder, kind and mode, name, content, ...). Each is answered with
(status, exit code, bytes shown, head, tail, spill file).
"""

import _signal as signal  # the signal module imports enum, a fifth of the time that a start takes
import fcntl
import posix
import select
import sys
import termios
import time

# ruff: noqa: SIM105 (contextlib too costs time at every start)

ROWS, COLUMNS = 40, 160
RING = 16384  # raw bytes kept from each end of a command's output
SPILL_FOLDER, SPILL_FROM, SPILL_LIMIT = "/tmp/terminal-output", 8192, 16 << 20
FLOOD, FLOOD_PAUSE = 1 << 20, 0.005  # a command that has shown so much is read more slowly
INPUT_STEP, INPUT_STEPS = 0.2, 2  # so many quiet steps in a read of the terminal: it waits for input
KILL_SHELL, GIVE_UP, DEAD = 0.5, 0.9, 3.0  # seconds after a deadline
MESSAGE_LIMIT = 64 << 20
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN,
            signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGALRM)  # fmt: skip
_RESET = (*_IGNORED, signal.SIGXFSZ, signal.SIGCHLD)

# The agent's shell. It opens the pipes by path, so that no program that it runs inherits them. USR1 (a
# deadline) and INT (C-c in a loop of builtins) end it by way of the EXIT trap, which hands everything that
# makes up its state to its successor; after each command it hands over what survives even a SIGKILL:
# directory and environment. The eval stands on line 25, which bash names in its error messages.
SHELL = r"""
__t1_fd=/proc/$PPID/fd; builtin eval "$T1_LIMITS"; unset T1_LIMITS
exit() { __t1_exit=1; builtin exit "$@"; }
__t1_status() { return "$1"; }
__t1_report() { builtin printf '%s\0%s\0%s\0' "$1" "$2" "$PWD"; }
__t1_end() {

  { set +x
    { __t1_report "$@"
      builtin declare -p; builtin declare -fp; builtin alias -p; builtin shopt -p; builtin set +o
      builtin printf '\0'; } >$__t1_fd/@REPORT@
  } 2>/dev/null
}
{ IFS= builtin read -r -d '' __t1_command <$__t1_fd/@COMMAND@; builtin eval "$__t1_command"; } 2>/dev/null
__t1_fd=/proc/$PPID/fd __t1_code=0 __t1_exit= __t1_signal=
builtin trap '__t1_signal=130; builtin exit 130' USR1 INT
builtin trap '__t1_end E${__t1_signal:-$?} "$__t1_exit"' EXIT
{ set -m; { __t1_report R ''; builtin printf '\0'; } >$__t1_fd/@REPORT@; } 2>/dev/null
while {
  builtin read -r __t1_code <$__t1_fd/@WAKE@ && IFS= builtin read -r -d '' __t1_command <$__t1_fd/@COMMAND@
} 2>/dev/null
do
  { builtin jobs >/dev/null  # jobs that ended meanwhile are not announced
    [[ $- == *e* ]] || __t1_status $__t1_code; } 2>/dev/null
  builtin eval "$__t1_command"
  { __t1_report D$? ''; builtin declare -px; builtin printf '\0'; } 2>/dev/null >$__t1_fd/@REPORT@
done
"""


def pack(*fields):
    """bytes of a message: its length, then each field behind its own, as 4 bytes big-endian."""
    body = b"".join([len(field).to_bytes(4, "big") + field for field in fields])
    return len(body).to_bytes(4, "big") + body


def unpack(body):
    """The fields of a message's body. Raises ValueError when the lengths do not fit."""
    fields, at = [], 0
    while at < len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        if end > len(body):
            raise ValueError("a field is longer than its message")
        fields.append(bytes(body[at + 4 : end]))
        at = end
    return fields


class Ring:
    """The first and the last bytes of a stream, in bounded memory, and how many there were."""

    def __init__(self, size=RING):
        self.size = size
        self.total = 0
        self.head = bytearray()
        self.tail = bytearray()

    def feed(self, data):
        """Add bytes. No more than 3 times the size is kept."""
        self.total += len(data)
        room = self.size - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if data:
            self.tail += data[-self.size :]
            if len(self.tail) > 2 * self.size:
                del self.tail[: -self.size]


class Supervisor:
    """Serves one control socket until its other end is closed."""

    def __init__(self, control):
        self.control = control
        self.poll = select.poll()
        self.limits = self.environment = b""
        self.directory = b"/"
        self.state = b""  # a script that gives a new shell what the last one had
        self.shell = self.last_code = 0
        self.ready = self.running = self.dead = False
        self.status, self.code = b"ok", None
        self.older = set()  # processes that were there before the running command
        self.ring = Ring()
        self.spill, self.spill_path, self.spills = -1, b"", 0
        self.reports = bytearray()
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.children, waker = posix.pipe()
        for descriptor in (self.children, waker):
            posix.set_blocking(descriptor, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self.open_terminal()
        self.report, self.report_in = posix.pipe()
        self.wake, self.wake_in = posix.pipe()
        self.command = posix.memfd_create("command")
        posix.set_blocking(self.report, False)
        for descriptor in (self.control, self.master, self.report, self.children):
            self.poll.register(descriptor, select.POLLIN)

    def open_terminal(self):
        """A PTY whose session this process leads: it outlives every shell."""
        self.master, self.slave = posix.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
        size = ROWS.to_bytes(2, sys.byteorder) + COLUMNS.to_bytes(2, sys.byteorder) + bytes(4)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, size)
        self.mode = termios.tcgetattr(self.slave)
        self.mode[0] = termios.ICRNL  # no IXON: C-s would stop the output for good
        self.mode[1] = 0  # no CR before LF
        self.mode[3] = termios.ISIG | termios.ICANON | termios.IEXTEN  # no echo
        termios.tcsetattr(self.slave, termios.TCSANOW, self.mode)
        posix.set_blocking(self.master, False)

    # -- requests
    # ------------------------------------------------------------------------------------------------

    def serve(self):
        """Answer requests, and read what background programs show meanwhile, until the host hangs up."""
        handlers: dict = {
            b"start": self.on_start,
            b"run": self.on_run,
            b"keys": self.on_keys,
            b"look": self.on_look,
            b"put": self.on_put,
        }
        while True:
            while not self.step(-1):
                pass
            kind, *fields = unpack(self.receive())
            if kind != b"start" and not self.shell and not self.dead:
                self.start_shell()  # it ended while nothing ran
            handlers[kind](*fields)
            if not self.running and not self.shell and not self.dead:
                self.start_shell()
            self.reply()

    def receive(self):
        """The body of a request."""
        data = bytearray()
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            chunk = posix.read(self.control, 1 << 16)
            if not chunk:
                sys.exit()
            data += chunk
        return data[4:]

    def reply(self):
        status = b"dead" if self.dead else b"running" if self.running else self.status
        code = b"" if self.running or self.dead or self.code is None else b"%d" % self.code
        ring, path = self.ring, self.spill_path
        data = pack(status, code, b"%d" % ring.total, ring.head, ring.tail, path)
        while data:
            data = data[posix.write(self.control, data) :]
        self.clear()
        if not self.running:
            self.status, self.code = b"ok", self.last_code

    def on_start(self, limits, directory, environment):
        self.limits, self.directory, self.environment = limits, directory, environment
        self.start_shell()

    def on_run(self, seconds, command):
        if self.dead or self.running:
            return
        while self.drain() == 65536:  # what background programs showed belongs to no command
            pass
        self.clear()
        termios.tcsetattr(self.slave, termios.TCSANOW, self.mode)
        self.older = set(self.processes())
        self.write_command(command)
        self.running, self.code = True, None
        posix.write(self.wake_in, b"%d\n" % self.last_code)
        self.follow(float(seconds), kill=True)

    def on_keys(self, keys):
        if not self.running:
            return
        self.clear()
        for start in range(0, len(keys), 1024):
            try:
                posix.write(self.master, keys[start : start + 1024])
            except BlockingIOError:  # the program reads none of it
                break
            self.step(0)
        self.follow(2.0, kill=False)

    def on_look(self):
        if self.running:
            self.follow(1.0, kill=False)

    def on_put(self, folder, *entries):
        """Make `folder` anew with the given entries: d(irectory), f(ile) and l(ink), each before what is in
        it."""
        remove(folder)
        posix.mkdir(folder, 0o755)
        for kind, name, content in zip(entries[::3], entries[1::3], entries[2::3], strict=True):
            path, mode = folder + b"/" + name, int(kind[1:], 8)
            if kind[:1] == b"l":
                posix.symlink(content, path)
            elif kind[:1] == b"d":
                posix.mkdir(path, mode)
            else:
                flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL
                descriptor = posix.open(path, flags, mode)
                while content:
                    content = content[posix.write(descriptor, content) :]
                posix.close(descriptor)

    def follow(self, seconds, kill):
        """Read on until the command ends, waits for input, or its time is up."""
        deadline, quiet, seen = time.monotonic() + seconds, 0, -1
        while self.running:
            left = deadline - time.monotonic()
            if left <= 0:
                if kill:
                    self.kill_command()
                return
            self.read_on(min(left, INPUT_STEP))
            if self.running:
                quiet = quiet + 1 if seen == self.ring.total and self.waits_for_input() else 0
                seen = self.ring.total
                if quiet >= INPUT_STEPS:
                    return

    def read_on(self, seconds):
        end = time.monotonic() + seconds
        while self.running and (left := end - time.monotonic()) > 0:
            self.step(left)

    # -- streams
    # -------------------------------------------------------------------------------------------------

    def step(self, seconds):
        """Wait for something to happen, and deal with it; True when a request is there."""
        requested = False
        for descriptor, events in self.poll.poll(seconds * 1000 if seconds >= 0 else None):
            if descriptor == self.control:
                requested = True
                if events & (select.POLLHUP | select.POLLERR):
                    sys.exit()
            elif descriptor == self.master:
                self.drain()
                if self.ring.total > FLOOD:  # its writer waits; the machine's other sandboxes do not
                    time.sleep(FLOOD_PAUSE)
            elif descriptor == self.report:
                self.on_report()
            else:
                posix.read(self.children, 4096)
                self.reap()
        return requested

    def drain(self):
        """Read a piece of the terminal's output; the number of its bytes."""
        try:
            data = posix.read(self.master, 65536)
        except BlockingIOError:
            return 0
        ring, before = self.ring, self.ring.total
        ring.feed(data)
        if ring.total > SPILL_FROM:
            self.keep(data if before > SPILL_FROM else bytes(ring.head[:before]) + data)
        return len(data)

    def keep(self, data):
        """The whole output in a file inside the sandbox, once it is longer than what is reported."""
        if self.spill < 0:
            if self.spill_path:
                return  # it is full
            self.spills += 1
            self.spill_path = b"%s/%d.txt" % (SPILL_FOLDER.encode(), self.spills)
            self.spilled = 0
            try:
                try:
                    posix.mkdir(SPILL_FOLDER, 0o755)
                except FileExistsError:
                    pass
                flags = posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_NOFOLLOW | posix.O_NONBLOCK
                self.spill = posix.open(self.spill_path, flags, 0o644)
            except OSError:
                self.spill_path = b""
                return
        try:
            self.spilled += posix.write(self.spill, data)
            full = self.spilled >= SPILL_LIMIT
        except OSError:
            full = True
        if full:
            posix.close(self.spill)
            self.spill = -1

    def clear(self):
        self.ring = Ring()
        self.spill_path = b""
        if self.spill >= 0:
            posix.close(self.spill)
            self.spill = -1

    def on_report(self):
        try:
            self.reports += posix.read(self.report, 1 << 16)
        except BlockingIOError:
            return
        while self.reports.count(b"\0") >= 4:
            kind, detail, directory, state, rest = self.reports.split(b"\0", 4)
            self.reports = rest
            number = int(kind[1:]) if kind[1:].isdigit() and len(kind) < 5 else 0
            if kind[:1] == b"R":
                self.ready = True
                continue
            if directory[:1] == b"/":
                self.directory, self.state = bytes(directory), bytes(state)
            if kind[:1] == b"D" and self.running:
                self.end(number)
            elif kind[:1] == b"E" and self.running:
                self.code = number
                if detail:  # the command called exit
                    self.status = b"shell_restarted"

    def end(self, code):
        """The running command has ended; all that it showed is read (a read of the master waits for the
        kernel)."""
        for _ in range(64):
            if not self.drain():
                break
        self.running = False
        self.code = self.last_code = code

    # -- processes
    # -----------------------------------------------------------------------------------------------

    def write_command(self, text):
        posix.ftruncate(self.command, 0)
        text, at = text.replace(b"\0", b"") + b"\0", 0
        while at < len(text):
            at += posix.pwrite(self.command, text[at:], at)

    def start_shell(self):
        """A shell with the last one's state, or without it when that takes too long; else the sandbox is
        dead."""
        home = b"builtin cd -- '%s' || builtin cd /\n" % self.directory.replace(b"'", b"'\\''")
        for state in {self.state: 4.0, b"": 2.0}.items():
            self.write_command(home + state[0])
            self.ready, self.reports = False, bytearray()
            self.drain_wake()
            self.spawn()
            end = time.monotonic() + state[1]
            while not self.ready and self.shell and time.monotonic() < end:
                self.step(0.05)
            if self.ready:
                return
            if self.shell:
                self.kill(self.shell)
                self.shell = 0
        self.dead = True

    def drain_wake(self):
        """A shell that was killed may have left its last call unread."""
        posix.set_blocking(self.wake, False)
        try:
            posix.read(self.wake, 4096)
        except BlockingIOError:
            pass
        posix.set_blocking(self.wake, True)

    def spawn(self):
        script = SHELL.encode()
        for name, number in ((b"REPORT", self.report_in), (b"WAKE", self.wake), (b"COMMAND", self.command)):
            script = script.replace(b"@%s@" % name, b"%d" % number)
        environment = dict(word.split(b"=", 1) for word in self.environment.split(b"\0") if b"=" in word)
        environment[b"T1_LIMITS"] = self.limits
        pid = posix.fork()
        if pid:
            self.shell = pid
            return
        try:
            posix.setpgid(0, 0)
            posix.tcsetpgrp(self.slave, posix.getpid())
            for descriptor in (0, 1, 2):
                posix.dup2(self.slave, descriptor)
            signal.set_wakeup_fd(-1)
            for number in _RESET:
                signal.signal(number, signal.SIG_DFL)
            posix.execve(
                b"/bin/bash", [b"bash", b"--noprofile", b"--norc", b"-c", script, b"bash"], environment
            )
        finally:
            posix._exit(127)

    def reap(self):
        """Collect every child that has ended; orphans too, whose parent this is."""
        while True:
            try:
                pid, status = posix.waitpid(-1, posix.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self.shell:
                self.on_shell_end(status)

    def on_shell_end(self, status):
        self.on_report()  # its last words
        self.shell, self.ready = 0, False
        if not self.running:
            self.status = b"shell_restarted"
            self.code = self.last_code = 0
            return
        code = self.code
        if code is None:  # it had no time to report
            code = posix.waitstatus_to_exitcode(status)
            code = code if code >= 0 else 128 - code
            self.status = b"shell_restarted"
        self.end(code)

    def processes(self):
        """The sandbox's processes but for the first, this one, its parent and the shell."""
        ours = {1, posix.getpid(), posix.getppid(), self.shell}
        return [pid for name in posix.listdir("/proc") if name.isdigit() and (pid := int(name)) not in ours]

    def kill_command(self):
        """Kill all that the running command started and take the shell out of it, within about GIVE_UP
        seconds."""
        began, code = time.monotonic(), 124
        self.kill(self.shell, signal.SIGUSR1)  # first, so that it does not go on with the rest of the command
        while True:
            victims = self.victims()
            if len(victims) > 16:  # they may well be quicker than this loop: stop the world
                self.kill(-1, signal.SIGSTOP)
                victims = self.victims()
                for pid in victims:
                    self.kill(pid)
                self.kill(-1, signal.SIGCONT)
            for pid in victims:
                self.kill(pid)
            if not self.running and not victims:
                break
            age = time.monotonic() - began
            if age > KILL_SHELL and self.shell:
                self.kill(self.shell)
            if age > GIVE_UP and not self.running:
                break  # what is killed and not gone yet, on a busy machine, goes by itself
            if age > DEAD:
                self.dead = True
                break
            self.step(0.01)
        self.running, self.status = False, b"timeout"
        self.code = self.last_code = code

    def victims(self):
        return [
            pid for pid in self.processes() if pid not in self.older and stat(pid)[0] not in ("", "Z", "X")
        ]

    def kill(self, pid, number=signal.SIGKILL):
        if pid:
            try:
                posix.kill(pid, number)
            except OSError:
                pass

    def waits_for_input(self):
        """Whether the foreground program sleeps in a read of the terminal, or has put it in raw mode and
        sleeps."""
        try:
            group = posix.tcgetpgrp(self.slave)
            raw = not termios.tcgetattr(self.slave)[3] & termios.ICANON
        except (OSError, termios.error):
            return False
        found = [(pid, stat(pid)) for pid in (*self.processes(), self.shell) if pid]
        members = [(pid, state) for pid, (state, of) in found if of == group]
        if raw and members and all(state == "S" for _, state in members):
            return True
        return any(reads_terminal(pid) for pid, _ in members)


def read(path):
    """A file of /proc, empty when its process has just ended."""
    try:
        descriptor = posix.open(path, posix.O_RDONLY)
    except OSError:
        return b""
    try:
        return posix.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        posix.close(descriptor)


def stat(pid):
    """(state letter, process group) of a process; ("", 0) when it has just ended."""
    words = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (words[0].decode(), int(words[2])) if words else ("", 0)


def reads_terminal(pid):
    """Whether a process sleeps in read(2) of a terminal (x86-64: system call 0, others: 63)."""
    words = read(f"/proc/{pid}/syscall").split()
    if len(words) < 2 or words[0] != (b"0" if posix.uname().machine == "x86_64" else b"63"):
        return False
    try:
        target = posix.readlink(f"/proc/{pid}/fd/{int(words[1], 16)}")
    except (OSError, ValueError):
        return False
    return target.startswith(("/dev/console", "/dev/pts/", "/dev/tty"))


def remove(path):
    """Remove whatever is at `path`, a link itself; nothing is fine too."""
    try:
        if posix.lstat(path).st_mode & 0o170000 != 0o040000:
            posix.unlink(path)
            return
    except FileNotFoundError:
        return
    for name in posix.listdir(path):
        remove(path + b"/" + name)
    posix.rmdir(path)


def connect(where):
    """The control socket: the number of an inherited descriptor, or the path of a listening socket."""
    if where.isdigit():
        control = int(where)
        posix.set_inheritable(control, False)
        posix.closerange(3, control)  # what started this may have left more open
        posix.closerange(control + 1, 1024)
        return control
    import _socket

    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    link.connect(where)
    return link.detach()


def lead_session():
    """Make this process the leader of a session. One that leads a process group may not, but its child
    may."""
    if posix.getsid(0) == posix.getpid():
        return
    try:
        posix.setsid()
    except PermissionError:
        child = posix.fork()
        if child:
            posix.waitpid(child, 0)
            posix._exit(0)
        posix.setsid()


if __name__ == "__main__":
    lead_session()
    Supervisor(connect(sys.argv[1])).serve()
