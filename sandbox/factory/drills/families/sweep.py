"""Held out: find the files that hold a word, then move them into a new directory."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, check

PHRASINGS = (
    "Some text files in /app contain the word {word}. Find out which, make the directory {directory}, "
    "and move those files to {directory}. All the other files must stay in place.",
    "In /app the files with the word {word} belong to a new directory {directory}. List them first, "
    "then move them, but keep all the other files where they are.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    word, directory = names.take(2)
    wanted, kept = sorted(names.file() for _ in range(size)), [names.file() for _ in range(rng.randint(2, 3))]
    files: dict[str, str | bytes] = {}
    for file in rng.sample([*wanted, *kept], len(wanted) + len(kept)):
        lines = [f"{names.word()}\n", *([f"{word}\n"] if file in wanted else [f"{names.word()}\n"])]
        files[file] = "".join(rng.sample(lines, len(lines)))
    stays = " and ".join(f"text({file!r}) == {str(files[file]).strip()!r}" for file in kept)
    checks = [
        check(
            f"move_{file}",
            f"text({f'{directory}/{file}'!r}) == {str(files[file]).strip()!r}",
            f"not exists({file!r})",
            stays,
        )
        for file in wanted
    ]
    listed = " ".join(f"./{file}" for file in wanted)
    return Drill(
        instruction=rng.choice(PHRASINGS).format(word=word, directory=directory),
        files=files,
        checks=tuple(checks),
        steps=(
            f"grep -l {word} ./*",
            f"mkdir {directory} && mv {listed} {directory}",
        ),
        difficulty=4,
    )


FAMILY = Family(name="sweep", area="files", skills=("grep", "mkdir", "mv", "look"), generate=generate)
