"""Repair scripts with a mistyped command: the mistake is known only after looking."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

TYPOS = ("ecko", "ehco", "eco", "ekho", "eecho", "exho")
PHRASINGS = (
    "The scripts {items} in /app fail, because in each of them the command echo is mistyped. Look at "
    "them and correct the mistakes.",
    "Please repair the bash scripts {items} in the directory /app. In every one the command echo is "
    "spelled wrong, each time differently.",
    "In /app the scripts {items} do not run: someone misspelled echo in each. Read them first, then fix"
    " only the wrong word in each.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = []
    for typo in rng.sample(TYPOS, size):
        script, words = names.file("sh"), " ".join(names.take(rng.randint(1, 2)))
        files[script] = f"{typo} {words}\n"
        requirements.append(
            Requirement(
                text=script,
                command=f"sed -i s/{typo}/echo/ {script}",
                check=check(f"fix_{script}", f"output({script!r}) == {words!r}"),
            )
        )
    look = "cat " + " ".join(requirement.text for requirement in requirements)
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=4, look=look)


FAMILY = Family(name="fix", area="code", skills=("cat", "sed", "bash", "look"), generate=generate)
