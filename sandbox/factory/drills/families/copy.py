"""Copy files to new names."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

PHRASINGS = (
    "Some files in /app are needed twice. Copy {items}. The files that you copy must stay in place, "
    "unchanged.",
    "Please make copies of these files in the directory /app: {items}. Keep the originals under their "
    "old names.",
    "In /app copy some files to new names: {items}. Both the file and its copy must be there in the end.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = []
    for _ in range(size):
        source, target, content = names.file(), names.file(), names.word()
        files[source] = content + "\n"
        requirements.append(
            Requirement(
                verb="copy",
                text=f"{source} to {target}",
                command=f"cp {source} {target}",
                check=check(f"copy_{source}", *[f"text({p!r}) == {content!r}" for p in (source, target)]),
            )
        )
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=1)


FAMILY = Family(name="copy", area="files", skills=("cp",), generate=generate)
