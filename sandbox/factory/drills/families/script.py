"""Write small shell scripts."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check, spread

PHRASINGS = (
    "Write these shell scripts in /app, each run with bash and made executable: {items}. They must "
    "print nothing else.",
    "In the directory /app make these executable scripts for bash: {items}. Set the execute bit, and "
    "let them print nothing more.",
    "We need small executable bash scripts in /app. Write {items}. No other output, and do not forget "
    "the execute bit.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = [kind(rng, names, files) for kind in spread(rng, [_word, _argument, _show], size)]
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=3)


def _requirement(script: str, phrase: str, line: str, *asserts: str) -> Requirement:
    return Requirement(
        verb="write",
        text=f"{script} that prints {phrase}",
        command=f"echo '{line}' > {script} && chmod +x {script}",
        check=check(f"run_{script}", *asserts, f"mode({script!r}) & 0o100"),
    )


def _word(rng: Random, names: Names, files: dict[str, str | bytes]) -> Requirement:
    script, word = names.file("sh"), names.word()
    return _requirement(script, f"the word {word}", f"echo {word}", f"output({script!r}) == {word!r}")


def _argument(rng: Random, names: Names, files: dict[str, str | bytes]) -> Requirement:
    script, word = names.file("sh"), names.word()
    probes = [f"output({script!r}, {probe!r}) == {f'{word} {probe}'!r}" for probe in names.take(2)]
    return _requirement(script, f"{word} and its first argument", f"echo {word} $1", *probes)


def _show(rng: Random, names: Names, files: dict[str, str | bytes]) -> Requirement:
    script, file, content = names.file("sh"), names.file(), names.word()
    files[file] = content + "\n"
    return _requirement(script, f"the file {file}", f"cat {file}", f"output({script!r}) == {content!r}")


FAMILY = Family(name="script", area="code", skills=("echo", "chmod", "bash"), generate=generate)
