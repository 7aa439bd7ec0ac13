"""Set the modes of files."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

MODES = ("600", "640", "660", "700", "750", "755", "400", "440", "444", "500")
PHRASINGS = (
    "The files in /app are readable by everyone. Set their permissions as follows: {items}. Do not "
    "change what they contain.",
    "Please change the file modes in the directory /app: {items}. The contents of the files must stay "
    "exactly as they are.",
    "Fix the access rights in /app. The octal modes must be {items}. Change only the modes and not the "
    "contents.",
)


def requirement(mode: str, names: Names, files: dict[str, str | bytes]) -> Requirement:
    file, content = names.file(), names.word()
    files[file] = content + "\n"
    return Requirement(
        verb="set",
        text=f"mode {mode} for {file}",
        command=f"chmod {mode} {file}",
        check=check(f"mode_{file}", f"mode({file!r}) == 0o{mode}", f"text({file!r}) == {content!r}"),
    )


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = [requirement(mode, names, files) for mode in rng.sample(MODES, size)]
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=1)


FAMILY = Family(name="permissions", area="system", skills=("chmod",), generate=generate)
