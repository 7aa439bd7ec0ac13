"""What the modules of task families share, in the factory and in the sandbox that grades.

A task carries this file and its family's module as they are, so that data, reference and tests are written
once. The standard library is all that there is beside it in the sandbox, and each import costs every verdict
some milliseconds: heavier modules are imported where they are used.
"""

from __future__ import annotations

import os
import random
from random import Random
from types import SimpleNamespace

APP = "/app"


class Params(SimpleNamespace):
    """The parameters of one task: what `draw` gave, and

    seed: a text that decides the task; nothing that the agent sees tells it.
    level: the difficulty, 1 to 5.
    """


class File:
    """A file of the environment with a mode, or a modification time in seconds since 1970."""

    def __init__(self, content: str | bytes, mode: int = 0o644, time: int | None = None) -> None:
        self.content, self.mode, self.time = content, mode, time


class Link:
    """A symbolic link of the environment."""

    def __init__(self, target: str) -> None:
        self.target = target


def _pool(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Two tasks that differ only in names of these pools, or in numbers, are the same (duplicates.py).
NOUNS = _pool(
    """
    acorn amber anchor anvil aspen atlas badge bamboo barley basil beacon birch bishop bison bramble brass
    bridge cabin cactus canyon carbon cargo cedar cinder circuit citron clover cobalt comet copper coral
    crane crystal dahlia delta dingo dune ember falcon fennel ferry fjord flint forest fossil galaxy garnet
    geyser ginger glacier granite gravel grove harbor harvest hazel heron hickory indigo iris island ivory
    jasper juniper kayak kelp kestrel lagoon lantern larch lichen lilac linden lotus lunar magnet mango
    maple marble marsh meadow meteor mica mint moss nectar nickel nova nutmeg oasis obsidian ocean olive
    onyx orchid osprey otter paprika pebble pepper pine plaza plum poplar prairie prism quartz quill rapids
    raven reef ridge river saffron sage salmon sandal sequoia shale sierra silk sparrow spruce summit thistle
    timber topaz tulip tundra valley velvet walnut willow zephyr zinc
    """
)
PEOPLE = _pool(
    """
    alba amir anton aoife arjun astrid bela bruno carmen chidi clara dario dmitri edith eiko elias emeka
    farah felix fiona freya gita goran hana hugo ines ivan jonas jun kamal karin kofi lars leila linus livia
    malik mara mateo mei milan nadia nils noor olga omar otto petra priya quinn rafael rosa sami selma silas
    sofia stefan tara tomas uma vera viktor wanda yara yusuf zainab zoe
    """
)
PLACES = _pool(
    """
    accra athens bergen bilbao bogota brno cairo cork dakar dhaka dublin gdansk genoa ghent graz hanoi
    havana izmir jaipur kigali kyoto lagos leeds lima lyon malmo manila milan nairobi nantes oslo osaka
    porto pune quito riga rabat sofia split tartu tirana toledo tunis turin utrecht varna vilnius warsaw
    """
)


def words(rng: Random, count: int, pool: tuple[str, ...] = NOUNS) -> list[str]:
    """`count` different names."""
    return rng.sample(pool, count)


def word(rng: Random, pool: tuple[str, ...] = NOUNS) -> str:
    return rng.choice(pool)


def table(rows: list[list[str]], separator: str = ",") -> str:
    """Rows as lines of text."""
    return "".join(separator.join(row) + "\n" for row in rows)


def put(path: str, text: str) -> str:
    """The command that writes a text to a file."""
    return f"cat > {path} <<'END'\n{text.rstrip()}\nEND"


def swap(path: str, old: str, new: str) -> str:
    """The command that puts one text in the place of another, the first time that it occurs in a file."""
    code = f"text = open({path!r}).read()\nopen({path!r}, 'w').write(text.replace({old!r}, {new!r}, 1))"
    return f"python3 - <<'END'\n{code}\nEND"


# -- for the tests -----------------------------------------------------------------------------------------


def given(p: Params) -> Random:
    """The generator that `files` was called with, to make the environment's data again."""
    return random.Random(f"{p.seed}/files")


def hidden(p: Params) -> Random:
    """The generator of a task's hidden data: the same in every test and in every verification of the task."""
    return random.Random(f"{p.seed}/hidden")


def at(path: str) -> str:
    """The absolute path of one under /app."""
    return os.path.join(APP, path)


def tidy(text: str) -> str:
    """Text without what no task is about: spaces that end a line, empty lines at both ends."""
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")


def raw(path: str) -> bytes:
    """The bytes of a file under /app."""
    with open(at(path), "rb") as file:
        return file.read()


def read(path: str) -> str:
    """The tidy text of a file under /app."""
    return tidy(raw(path).decode())


def mode(path: str) -> int:
    """The permission bits of a file under /app; a link is not followed."""
    return os.lstat(at(path)).st_mode & 0o7777


def tree(path: str) -> dict[str, bytes]:
    """The regular files of a folder under /app: relative path -> content."""
    found, top = {}, at(path)
    for folder, _, names in os.walk(top):
        for name in names:
            place = os.path.join(folder, name)
            if os.path.isfile(place) and not os.path.islink(place):
                with open(place, "rb") as file:
                    found[os.path.relpath(place, top)] = file.read()
    return found


def scratch(files: dict[str, str | bytes]) -> str:
    """A new folder outside /app that holds these files (path -> content)."""
    import tempfile

    top = tempfile.mkdtemp(prefix="case-")
    for path, content in files.items():
        place = os.path.join(top, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    return top


def run(*command: str, stdin: str = "", cwd: str = "", timeout: float = 25.0, ok: bool = True):
    """Runs a program, in /app unless `cwd` says else: what subprocess.run gives, with text.

    With `ok`, an exit code other than 0 is a failure of the test.
    """
    import subprocess

    done = subprocess.run(
        command,
        input=stdin,
        cwd=cwd or APP,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
    )
    assert not ok or done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-200:]}"
    return done


def output(*command: str, stdin: str = "", cwd: str = "", timeout: float = 25.0, ok: bool = True) -> str:
    """The tidy output of a program; see `run`."""
    return tidy(run(*command, stdin=stdin, cwd=cwd, timeout=timeout, ok=ok).stdout)
