from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from sandbox.errors import InputError
from t1_jax.config import load_config, save_config


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.1
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True, kw_only=True)
class Outer:
    out: Path
    steps: int = 3
    flag: bool = True
    name: str | None = None
    sizes: tuple[int, ...] = ()
    inner: Inner = Inner()


def test_file_then_overrides(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("out: runs/x\nsteps: 5\ninner: {rate: 1e-4}\n")
    config = load_config(Outer, file, ["--inner.kind", "b", "--sizes=[1, 2]", "--name", "null", "--steps=7"])
    assert config == Outer(out=Path("runs/x"), steps=7, sizes=(1, 2), inner=Inner(rate=1e-4, kind="b"))
    save_config(config, tmp_path / "deep" / "b.yaml")
    assert load_config(Outer, tmp_path / "deep" / "b.yaml") == config


def test_a_section_may_be_a_file(tmp_path):
    (tmp_path / "inner.yaml").write_text("kind: b\n")
    config = load_config(Outer, None, ["--out", "x", "--inner", str(tmp_path / "inner.yaml")])
    assert config.inner == Inner(kind="b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("out: x\nstep: 1", "unknown key step; expected one of"),
        ("out: x\ninner: {rat: 1}", "unknown key inner.rat"),
        ("out: x\nsteps: many", "steps is 'many'; expected an integer"),
        ("out: x\nsteps: true", "steps is True; expected an integer"),
        ("out: x\nsteps: 1.5", "steps is 1.5; expected an integer"),
        ("out: x\nflag: 1", "flag is 1; expected true or false"),
        ("out: x\nname: 3", "name is 3; expected text"),
        ("out: x\nsizes: [1, a]", r"sizes\[1\] is 'a'; expected an integer"),
        ("out: x\ninner: {kind: c}", "inner.kind is 'c'; expected one of a, b"),
        ("out: x\ninner: 3", "inner is 3; expected a section or a YAML file"),
        ("steps: 1", "out is missing; expected a path"),
        ("out: x\nout: y", "key 'out' is given twice"),
        ("- out", "expected a mapping at the top, got list"),
        ("out: [", "not valid YAML"),
    ],
)
def test_bad_files_are_told_in_one_line(tmp_path, text, message):
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        load_config(Outer, file)
    assert "a.yaml" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["out", "x"], "'out' is not an option"),
        (["--out"], "--out has no value"),
        (["--steps.more", "3", "--out", "x", "--steps.more.most", "3"], "goes through 'more'"),
    ],
)
def test_bad_overrides_are_named(words, message):
    with pytest.raises(InputError, match=message):
        load_config(Outer, None, words)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"missing.yaml: No such file"):
        load_config(Outer, tmp_path / "missing.yaml")


def test_a_config_that_cannot_be_written_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        save_config(Outer(out=Path("x")), tmp_path / "file" / "config.yaml")
