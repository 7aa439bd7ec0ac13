"""Read the error lines of a log and write down each reason: the answers are known only after looking."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

PHRASINGS = (
    "Some services failed. Each error line in /app/{log} reads error, service, reason. Look with grep "
    "error in {log} and write the reason of {items}.",
    "The file {log} in /app has an error line for some services, in the form error, service, reason. "
    "Save the reason of {items}.",
    "Find out why services failed: the error lines of {log} in /app show error, service, reason. Write "
    "down the reason of {items}.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    log = names.file("log")
    requirements = []
    lines = [f"info {names.word()} {names.word()}\n" for _ in range(rng.randint(3, 5))]
    for _ in range(size):
        service, reason, out = names.word(), names.word(), names.file()
        lines += [f"error {service} {reason}\n", f"info {service} {names.word()}\n"]
        requirements.append(
            Requirement(
                text=f"{service} to {out}",
                command=f"echo {reason} > {out}",
                check=check(f"reason_{out}", f"text({out!r}) == {reason!r}"),
            )
        )
    return assemble(
        rng,
        phrasings=PHRASINGS,
        requirements=requirements,
        files={log: "".join(rng.sample(lines, len(lines)))},
        difficulty=3,
        look=f"grep error {log}",
        log=log,
    )


FAMILY = Family(name="log", area="text", skills=("grep", "echo", "look"), generate=generate)
