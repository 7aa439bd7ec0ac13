"""Move files into directories by their extension."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check
from sandbox.factory.drills.words import EXTENSIONS

PHRASINGS = (
    "Tidy up the directory /app. Make these new directories and move {items}. No other file may go into"
    " them.",
    "The files in /app lie in a heap. Move {items}. Make the directories first, and do not change the "
    "files themselves.",
    "Please sort the files of /app into new directories by their extension: move {items}. Files of "
    "other kinds stay in place.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    extensions = rng.sample(EXTENSIONS, size + 1)
    heap = [names.file(extension) for extension in extensions for _ in range(rng.randint(1, 3))]
    files: dict[str, str | bytes] = {file: names.lines(1) for file in rng.sample(heap, len(heap))}
    requirements = []
    for extension in extensions[:size]:
        directory = names.word()
        moved = sorted(file for file in heap if file.endswith(f".{extension}"))
        requirements.append(
            Requirement(
                verb="move",
                text=f"the {extension} files to {directory}",
                command=f"mkdir {directory} && mv *.{extension} {directory}",
                check=check(
                    f"move_{extension}",
                    f"names({directory!r}) == {moved!r}",
                    f"not any(name.endswith('.{extension}') for name in names('.'))",
                    *[f"text({f'{directory}/{file}'!r}) == {str(files[file]).strip()!r}" for file in moved],
                ),
            )
        )
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=2)


FAMILY = Family(name="extension", area="files", skills=("mkdir", "mv", "glob"), generate=generate)
