"""What families whose answer is a program share: inputs with a result, instructions, steps of credit."""

from random import Random

import pytest

from sandbox.factory import kit
from sandbox.factory.kit import Params
from sandbox.factory.scripts import answerable, changer, printer, questions, solvable, wordings

NAMES = {"source": "fjord.txt", "script": "reef.sh", "out": "delta.txt"}


def lines(rng, p):
    return "".join(f"{rng.randint(1, 9)}\n" for _ in range(p.size))


def kept(text, p):
    return "".join(line for line in text.splitlines(True) if line[0] in p.keep)


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.setattr(kit, "APP", str(tmp_path))
    return tmp_path


def test_choices_that_leave_nothing_are_drawn_again():
    def choose(rng, level):
        return {**NAMES, "keep": rng.choice(["", "123456789"[:8]]), "size": level}

    assert all(solvable(Random(seed), 3, choose, lines, kept)["keep"] for seed in range(8))
    with pytest.raises(ValueError, match="80 choices at level 3 have no result"):
        solvable(Random(0), 3, lambda rng, level: {"keep": "", "size": level}, lines, kept)


def test_questions_differ_and_have_answers():
    def count(text, case, p):
        return text.count(case["digit"]) * "x"

    drawn = answerable(Random(1), 3, lambda rng: {"digit": str(rng.randint(0, 9))}, lines, count, size=60)
    digits = [case["digit"] for case in drawn["cases"]]
    assert len(set(digits)) == len({case["script"] for case in drawn["cases"]}) == 3 and "0" not in digits
    with pytest.raises(ValueError, match="fewer than 2 questions have an answer"):
        answerable(Random(1), 2, lambda rng: {"digit": "1"}, lines, count, size=60)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, "`bash /app/reef.sh FILE`"),
        ({"source": "fjord", "script": "reef.py", "out": ""}, "`python3 /app/reef.py FOLDER`"),
    ],
)
def test_instructions_name_what_is_run_on_what(change, named):
    p = Params(**{**NAMES, **change})
    texts = wordings(p, ["We need it.", "It is needed."], ["first", "second"])
    assert len(set(texts)) == 6 and all("- first\n- second\n" in text for text in texts)
    assert sum(named in text for text in texts) == 4 and all(f"/app/{p.source}" in text for text in texts)


def test_half_of_the_lines_is_half_the_credit(app):
    files, _, _, half, saved, *_ = printer(lines, kept, lambda p: "")
    p = Params(**NAMES, keep="12345", size=40, seed="s", level=1)
    right = kept(files(kit.given(p), p)["fjord.txt"], p).splitlines()
    for shown, passes in [
        (right, [half, saved]),
        (right[: len(right) // 2 + 1], [half]),
        (right[:2], []),
        (right * 3, []),
    ]:
        (app / "delta.txt").write_text("\n".join(shown))
        for test in (half, saved):
            if test in passes:
                test(p)
            else:
                with pytest.raises(AssertionError):
                    test(p)


def test_programs_are_played_on_inputs_that_nobody_saw(app):
    *_, others = printer(lines, kept, lambda p: "")
    p = Params(**NAMES, keep="12345", size=20, seed="s", level=1)
    (app / "reef.sh").write_text("grep '[1-5]' \"$1\"\n")
    others(p)
    (app / "reef.sh").write_text("grep '[1-4]' \"$1\"\n")
    with pytest.raises(AssertionError):
        others(p)


def test_folders_are_compared_as_a_whole(app):
    def make(rng, p):
        return {f"{name}.txt": f"{rng.random()}\n" for name in "abcd"}

    def worked(made, p):
        return {name.upper(): text for name, text in made.items()}

    files, _, _, half, whole, one_more, _ = changer(make, worked, lambda p: "")
    p = Params(**{**NAMES, "source": "fjord", "out": ""}, seed="s", level=1)
    (app / "fjord").mkdir()
    for path, text in files(kit.given(p), p).items():
        (app / path).write_text(text)
    (app / "reef.sh").write_text('cd "$1" && for f in *.txt; do mv $f $(echo $f | tr a-z A-Z); done\n')
    for test in (half, whole):
        with pytest.raises(AssertionError):
            test(p)
    kit.run("bash", str(app / "reef.sh"), str(app / "fjord"))
    for test in (half, whole, one_more):
        test(p)
    (app / "fjord" / "more").write_text("x")
    half(p)
    with pytest.raises(AssertionError):
        whole(p)


def test_each_question_is_a_case(app):
    def count(text, case, p):
        return str(text.count(case["digit"]) or "")

    files, solution, _, answer, others = questions(
        lines, count, lambda case, p: f'grep -c {case["digit"]} "$1"'
    )
    cases = [{"digit": "1", "script": "one.sh"}, {"digit": "2", "script": "two.sh"}]
    p = Params(source="fjord.txt", cases=cases, size=40, seed="s", level=1)
    (app / "fjord.txt").write_text(files(kit.given(p), p)["fjord.txt"])
    (app / "one.sh").write_text('grep -c 1 "$1"\n')
    (app / "two.sh").write_text('grep -c 3 "$1"\n')
    answer(p, cases[0])
    others(p, cases[0])
    with pytest.raises(AssertionError):
        others(p, cases[1])
    assert len(solution(p)) == 5
