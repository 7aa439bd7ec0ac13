"""Make directories, and move a file into each."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

PHRASINGS = (
    "Some files in /app need a place of their own. Make new directories {items}. The contents of the "
    "files must not change.",
    "Please tidy up the directory /app with new directories: {items}. Move only the files that are named "
    "and change none.",
    "In /app make these directories: {items}. After that no named file may lie at its old place.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = []
    for _ in range(size):
        directory, file, content = names.word(), names.file(), names.word()
        files[file] = content + "\n"
        requirements.append(
            Requirement(
                verb="make the directory",
                text=f"{directory} with {file} in it",
                command=f"mkdir {directory} && mv {file} {directory}",
                check=check(
                    f"move_{file}",
                    f"text({f'{directory}/{file}'!r}) == {content!r}",
                    f"not exists({file!r})",
                ),
            )
        )
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=2)


FAMILY = Family(name="folder", area="files", skills=("mkdir", "mv"), generate=generate)
