"""Find files in a tree and copy them: where they are is known only after looking."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

PHRASINGS = (
    "Some files are somewhere below /app, in directories that nobody remembers. Find them and copy "
    "{items}. Keep the originals.",
    "Please find these files in the tree under /app and copy each to the place given: {items}. The "
    "originals must stay.",
    "Some files lie deep in the directories of /app. Look for them, then copy {items}. Do not move or "
    "change the originals.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = []
    for _ in range(size):
        file, out, content = names.file(), names.file("md"), names.word()
        path = "/".join([*names.take(rng.randint(1, 2)), file])
        files[path] = content + "\n"
        requirements.append(
            Requirement(
                text=f"{file} to {out}",
                command=f"cp ./{path} {out}",
                check=check(f"copy_{file}", *[f"text({place!r}) == {content!r}" for place in (out, path)]),
            )
        )
    return assemble(
        rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=3, look="find . -type f"
    )


FAMILY = Family(name="find", area="files", skills=("find", "cp", "look"), generate=generate)
