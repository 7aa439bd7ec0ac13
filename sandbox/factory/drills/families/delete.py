"""Delete the files that hold a word: which they are is known only after looking."""

from random import Random

from sandbox.factory.drills.base import Check, Drill, Family, Names, check

PHRASINGS = (
    "Some text files in /app contain the word {word}. Find out which, and delete those files. All the "
    "other files must stay as they are.",
    "Please clean up the directory /app: delete every file that has the word {word} in it, and no other"
    " file. Look before you delete.",
    "In /app the files with the word {word} are no longer needed. List them first, then delete them, "
    "but keep all the other files as they are.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    # Of the many words: five would give too few distinct instances.
    word = names.take(1)[0]
    doomed, kept = sorted(names.file() for _ in range(size)), [names.file() for _ in range(rng.randint(2, 3))]
    files: dict[str, str | bytes] = {}
    for file in rng.sample([*doomed, *kept], len(doomed) + len(kept)):
        lines = [f"{names.word()}\n", f"{names.word()}\n", *([f"{word}\n"] if file in doomed else [])]
        files[file] = "".join(rng.sample(lines, len(lines)))
    stays = " and ".join(f"text({file!r}) == {str(files[file]).strip()!r}" for file in kept)
    checks: list[Check] = [check(f"delete_{file}", f"not exists({file!r})", stays) for file in doomed]
    return Drill(
        instruction=rng.choice(PHRASINGS).format(word=word),
        files=files,
        checks=tuple(checks),
        steps=(
            f"grep -l {word} ./*",
            "rm " + " ".join(f"./{file}" for file in doomed),
        ),
        difficulty=3,
    )


FAMILY = Family(name="delete", area="files", skills=("grep", "rm", "look"), generate=generate)
