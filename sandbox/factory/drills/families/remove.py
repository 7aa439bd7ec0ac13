"""Remove the files that are named, and no others."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

PHRASINGS = (
    "Some files in /app are no longer needed. Remove {items}. All the other files must stay as they are now.",
    "Please clean up the directory /app and remove {items}. Nothing else may be deleted or changed there.",
    "In /app a few files are in the way: remove {items}. Keep all the files that are not named here.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    doomed = [names.file() for _ in range(size)]
    kept = {names.file(): names.word() for _ in range(2)}
    stays = [f"text({file!r}) == {word!r}" for file, word in kept.items()]
    requirements = [
        Requirement(
            verb="remove",
            text=f"the file {file}",
            command=f"rm {file}",
            check=check(f"remove_{file}", f"not exists({file!r})", *stays),
        )
        for file in doomed
    ]
    contents = {**{file: names.word() for file in doomed}, **kept}
    files: dict[str, str | bytes] = {
        file: f"{contents[file]}\n" for file in rng.sample(sorted(contents), len(contents))
    }
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=1)


FAMILY = Family(name="remove", area="files", skills=("rm",), generate=generate)
