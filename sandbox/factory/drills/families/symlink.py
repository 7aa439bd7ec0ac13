"""Make symbolic links."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

PHRASINGS = (
    "Make these symbolic links in /app: {items}. They must be links and not copies, and the target "
    "files stay where they are.",
    "In the directory /app some old names are still in use. Add symbolic links {items}. Do not move or "
    "copy the target files.",
    "Please create these symbolic links in /app: {items}. Leave the files that the links point to "
    "unchanged in their place.",
)


def requirement(names: Names, files: dict[str, str | bytes]) -> Requirement:
    target, link, content = names.file(), names.file(), names.word()
    files[target] = content + "\n"
    return Requirement(
        verb="make the link",
        text=f"{link} pointing to {target}",
        command=f"ln -s {target} {link}",
        check=check(f"link_{link}", f"points({link!r}, {target!r})", f"text({target!r}) == {content!r}"),
    )


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = [requirement(names, files) for _ in range(size)]
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=2)


FAMILY = Family(name="symlink", area="system", skills=("ln",), generate=generate)
