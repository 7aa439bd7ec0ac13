"""Full-size task families: one module each, families/AREA/NAME.py, all of one shape (docs/families.md).

A module has a docstring (what is asked; what makes it hard), SKILLS, perhaps BINARIES, and the functions

    draw(rng, level) -> dict          the parameters of a task of this difficulty: plain values
    files(rng, p) -> dict             the environment: path under /app (or absolute) -> content
    instruction(p) -> list[str]       the same request in several wordings
    solution(p) -> list[str]          commands, each a call of the terminal
    lazy(p) -> list[str]              commands that answer only for what can be seen; never worth 1
    test_...(p)                       at least three; one named test_hidden... draws its data from hidden(p)
    test_...(p, case)                 a test for each of p.cases, a parameter
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from types import FunctionType, ModuleType
from typing import Any, ClassVar

from sandbox.factory import base, render
from sandbox.factory import families as _families
from sandbox.factory.kit import Params, given

LEVELS = (1, 2, 3, 4, 5)
_FUNCTIONS = ("draw", "files", "instruction", "solution", "lazy")
_MIN_WORDINGS, _MIN_TESTS = 3, 3

_TEST_OUTPUTS = '''\
"""The tests of one task: those of its family (family.py) with the parameters drawn for it."""

import sys
from importlib import import_module

sys.path.insert(0, "/tests")
for name in {libraries}:  # family.py asks for them by their names in the factory
    sys.modules[f"sandbox.factory.{{name}}"] = import_module(name)
family = import_module("family")
P = import_module("kit").Params(
{parameters}
)
'''
_TEST = """

def {name}():
    family.{function}(P{case})
"""
_LIBRARY = re.compile(r"^from sandbox\.factory\.(\w+) import", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Drawn(base.Instance):
    """A task of a full-size family."""

    # The one public image with git, make, a compiler and Python beside Debian's own programs.
    image: ClassVar[str] = "buildpack-deps:bookworm"
    agent_timeout: ClassVar[float] = 900.0
    memory_mb: ClassVar[int] = 2048

    module: ModuleType = field(repr=False)
    params: Params

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(self._calls())

    @property
    def test_files(self) -> dict[str, str]:
        """test_outputs.py, the family's module, and the modules of the factory that it imports."""
        source = _source(self.module)
        libraries = ["kit", *sorted({*_LIBRARY.findall(source)} - {"kit"})]  # the others import kit
        parameters = "\n".join(f"    {name}={value!r}," for name, value in sorted(vars(self.params).items()))
        tests = [
            _TEST.format(name=name, function=function, case="" if case is None else f", {case!r}")
            for name, (function, case) in self._calls().items()
        ]
        outputs = _TEST_OUTPUTS.format(libraries=libraries, parameters=parameters) + "".join(tests)
        carried = {f"{name}.py": render.source(f"{name}.py") for name in libraries}
        return {"test_outputs.py": outputs, "family.py": source, **carried}

    def _calls(self) -> dict[str, tuple[str, Any]]:
        """Test id -> the module's function, and the case that it is called with."""
        calls: dict[str, tuple[str, Any]] = {}
        for name, function in _tests(self.module).items():
            if function.__code__.co_argcount == 1:
                calls[name] = (name, None)
            else:
                cases = enumerate(self.params.cases, 1)
                calls |= {f"{name}_{number}": (name, case) for number, case in cases}
        return calls


@dataclass(frozen=True, kw_only=True)
class Family(base.Family):
    """A full-size family."""

    module: ModuleType = field(repr=False)

    def draft(self, seed: str, level: int) -> tuple[Params, str, tuple[str, ...]]:
        """Parameters, instruction and solution of `instance`: what tells tasks apart, without the files."""
        drawn = self.module.draw(Random(f"{seed}/draw"), level)
        self._require(_is_plain(drawn), f"draw gives {drawn!r}, expected a dict of plain values")
        p = Params(**drawn, seed=seed, level=level)
        wordings = [_paragraphs(text) for text in self.module.instruction(p)]
        self._require(
            len(set(wordings)) >= _MIN_WORDINGS, f"instruction has fewer than {_MIN_WORDINGS} wordings"
        )
        return p, Random(f"{seed}/wording").choice(wordings), tuple(self.module.solution(p))

    def instance(self, seed: str, level: int) -> Drawn:
        """The task that `seed` decides. Raises ValueError when the module breaks the shape.

        Parameters, files and wording are drawn apart, so that a change of one leaves the others.
        """
        p, instruction, steps = self.draft(seed, level)
        made = Drawn(
            instruction=instruction,
            files=self.module.files(given(p), p),
            steps=steps,
            difficulty=level,
            lazy=tuple(self.module.lazy(p)),
            module=self.module,
            params=p,
        )
        self._require(len(made.tests) >= _MIN_TESTS, f"fewer than {_MIN_TESTS} tests at level {level}")
        return made

    def _require(self, holds: bool, message: str) -> None:
        if not holds:
            raise ValueError(f"family {self.name}: {message}")


@cache
def families() -> dict[str, Family]:
    """Every full-size family by name. Raises ValueError for a module that breaks the shape."""
    found: dict[str, Family] = {}
    for area in pkgutil.iter_modules(_families.__path__):
        package = importlib.import_module(f"{_families.__name__}.{area.name}")
        for entry in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{entry.name}")
            family = Family(
                name=entry.name,
                area=area.name,
                skills=tuple(module.SKILLS),
                binaries=tuple(getattr(module, "BINARIES", ())),
                module=module,
            )
            missing = [name for name in _FUNCTIONS if not callable(getattr(module, name, None))]
            family._require(not missing, f"no function {', '.join(missing)}")
            family._require(
                len((module.__doc__ or "").split("\n\n")) >= 2, "the docstring has no second part"
            )
            hidden = [name for name in _tests(module) if name.startswith("test_hidden")]
            family._require(bool(hidden), "no test_hidden...")
            family._require(entry.name not in found, "a second family of this name")
            found[entry.name] = family
    return dict(sorted(found.items()))


@cache
def _tests(module: ModuleType) -> dict[str, FunctionType]:
    return {name: value for name, value in vars(module).items() if name.startswith("test_")}


@cache
def _source(module: ModuleType) -> str:
    return Path(inspect.getfile(module)).read_text()


def _is_plain(value: Any) -> bool:
    """Whether `repr` gives the value back, as the tests' file needs it to."""
    try:
        return isinstance(value, dict) and ast.literal_eval(repr(value)) == value
    except (ValueError, SyntaxError):
        return False


def _paragraphs(text: str) -> str:
    """Text whose wrapped lines are joined: an empty line parts paragraphs, and `- ` begins an item."""
    lines = "\n".join(line.strip() for line in text.strip().split("\n"))
    return re.sub(r"(?<!\n)\n(?!\n|- )", " ", lines)
