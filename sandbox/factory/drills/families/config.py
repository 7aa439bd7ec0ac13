"""Change settings in a configuration file."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check
from sandbox.factory.drills.words import KEYS

PHRASINGS = (
    "The settings in /app/{file} are out of date. In {file} set {items}. Write them as key = value and "
    "keep the other settings.",
    "Edit the configuration file {file} in /app: set {items}. Keep the form key = value, and leave all "
    "the other lines alone.",
    "In the directory /app change some settings of {file}: set {items}. A line has the form key = "
    "value. Keep other lines.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    file = names.file("conf")
    keys = rng.sample(KEYS, rng.randint(size + 2, size + 3))
    settings = {key: _value(rng, names) for key in keys}
    requirements = []
    changed = rng.sample(keys, size)
    for key in changed:
        value = _value(rng, names)
        while value == settings[key]:
            value = _value(rng, names)
        kept = [f"{other} = {settings[other]}" for other in keys if other not in changed]
        requirements.append(
            Requirement(
                text=f"{key} to {value}",
                command=f"sed -i 's/^{key} = .*/{key} = {value}/' {file}",
                check=check(
                    f"set_{key}",
                    f"text({file!r}).split('\\n').count({f'{key} = {value}'!r}) == 1",
                    f"text({file!r}).count({f'{key} ='!r}) == 1",
                    f"set({kept!r}) <= set(text({file!r}).split('\\n'))",
                ),
            )
        )
    content = "".join(f"{key} = {value}\n" for key, value in settings.items())
    return assemble(
        rng, phrasings=PHRASINGS, requirements=requirements, files={file: content}, difficulty=2, file=file
    )


def _value(rng: Random, names: Names) -> str:
    return str(rng.randint(10, 99)) if rng.random() < 0.5 else names.word()


FAMILY = Family(name="config", area="system", skills=("sed",), generate=generate)
