"""Pack directories into archives, and compress a file."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check, spread

PHRASINGS = (
    "Prepare these archives in /app: {items}. Keep the directories and the files that you pack where "
    "they are.",
    "Please back up parts of the directory /app: {items}. Do not delete or change what is packed.",
    "Some things in /app go to the store. Make these archives: {items}. The originals must stay in place.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    kinds = spread(rng, [_directory, _directory, _file], size)
    requirements = [kind(rng, names, files) for kind in kinds]
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=3)


def _directory(rng: Random, names: Names, files: dict[str, str | bytes]) -> Requirement:
    directory, out = names.word(), names.word()
    content = {f"{directory}/{names.file()}": names.word() for _ in range(rng.randint(1, 3))}
    files.update({path: f"{word}\n" for path, word in content.items()})
    kept = " and ".join(f"text({path!r}) == {word!r}" for path, word in content.items())
    # Paths in the archive may start at the directory or at what is in it: the instruction leaves that open.
    inner = {path.split("/")[1]: word for path, word in content.items()}
    return Requirement(
        verb="pack",
        text=f"the directory {directory} as {out}.tar.gz",
        command=f"tar -czf {out}.tar.gz {directory}",
        check=check(
            f"pack_{directory}",
            f"{{path.split('/')[-1]: word for path, word in packed('{out}.tar.gz').items()}} == {inner!r}",
            kept,
        ),
    )


def _file(rng: Random, names: Names, files: dict[str, str | bytes]) -> Requirement:
    file, lines = names.file(), names.take(rng.randint(2, 4))
    files[file] = "\n".join(lines) + "\n"
    return Requirement(
        verb="pack",
        text=f"the file {file} as {file}.gz",
        command=f"gzip -k {file}",
        check=check(
            f"compress_{file}",
            f"gzipped('{file}.gz').split('\\n') == {lines!r}",
            f"text({file!r}).split('\\n') == {lines!r}",
        ),
    )


FAMILY = Family(name="archive", area="system", skills=("tar", "gzip"), generate=generate)
