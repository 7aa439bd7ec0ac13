"""The helpers that the tests of a drill use, as the text that each test file begins with."""

PRELUDE = """\
import os

APP = "/app"


def at(path):
    return os.path.join(APP, path)


def text(path):
    with open(at(path), encoding="utf-8") as file:
        return "\\n".join(line.rstrip() for line in file.read().split("\\n")).strip("\\n")


def is_file(path):
    return os.path.isfile(at(path)) and not os.path.islink(at(path))


def exists(path):
    return os.path.lexists(at(path))


def mode(path):
    return os.stat(at(path)).st_mode & 0o777


def names(path):
    return sorted(os.listdir(at(path)))


def points(path, target):
    return os.path.islink(at(path)) and os.path.realpath(at(path)) == os.path.realpath(at(target))


def output(script, *arguments):
    import subprocess

    command = ["bash", at(script), *arguments]
    done = subprocess.run(command, cwd=APP, capture_output=True, text=True, timeout=10)
    return done.stdout.strip()


def packed(path):
    import tarfile

    with tarfile.open(at(path)) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        return {member.name: archive.extractfile(member).read().decode().strip("\\n") for member in members}


def gzipped(path):
    import gzip

    with gzip.open(at(path), "rt") as file:
        return file.read().strip("\\n")
"""
