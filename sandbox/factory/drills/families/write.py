"""Create files that hold a given word."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

PHRASINGS = (
    "In the directory /app create these new text files: {items}. Each file must hold exactly that one "
    "word on a line.",
    "Please make these text files in /app, each with a single line that is the given word: {items}. "
    "Nothing else is needed.",
    "We need some small files in the current directory /app. Write {items}, one word in each file and "
    "no other text.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    requirements = []
    for _ in range(size):
        file, word = names.file(), names.word()
        requirements.append(
            Requirement(
                verb="write",
                text=f"{file} with the word {word}",
                command=f"echo {word} > {file}",
                check=check(f"write_{file}", f"text({file!r}) == {word!r}"),
            )
        )
    readme = f"{names.word()} {names.word()}\n"
    return assemble(
        rng, phrasings=PHRASINGS, requirements=requirements, files={"readme.md": readme}, difficulty=1
    )


FAMILY = Family(name="write", area="files", skills=("echo", "redirect"), generate=generate)
