from html.parser import HTMLParser

import pytest

from sandbox.attempt import Attempt
from sandbox.files import write_json
from sandbox.statistics import compare
from sandbox.summary import summarize
from sandbox.task import Task
from t1_jax.observability.evaluation import write_comparison, write_evaluation

VOID = {"meta", "line", "rect", "circle", "path", "br", "polygon"}


class _Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []
        self.texts = []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(path):
    parser = _Balanced()
    parser.feed(path.read_text())
    assert parser.open == []
    return " ".join(parser.texts), path.read_text()


@pytest.fixture
def tasks(tmp_path):
    return [
        Task(
            name=name, path=tmp_path, instruction="", metadata={"area": "git", "difficulty": 2, "family": "f"}
        )
        for name in ("<one>", "two")
    ]


def result(tasks, rewards):
    attempts = [
        Attempt(
            task=task.name, attempt=k, reward=reward, ending="infra_error" if reward is None else "finish",
            problem="" if reward is not None else "disk <full>",
        )
        for task, row in zip(tasks, rewards, strict=True) for k, reward in enumerate(row)
    ]  # fmt: skip
    more = {"agent": "oracle", "backend": "bubblewrap", "seed": 0, "temperature": 1.0}
    return summarize(tasks, attempts) | more


def test_the_page_of_an_evaluation_holds_its_numbers(tasks, tmp_path):
    write_evaluation(result(tasks, [[1.0, 0.5], [0.25, None]]), tmp_path / "e.html")
    text, source = read(tmp_path / "e.html")
    for part in ("<one>", "By area", "git (2)", "By difficulty", "tests_failed 1", "disk <full>", "1 of 4"):
        assert part in text
    assert "<one>" not in source
    write_evaluation(result(tasks, [[None], [None]]), tmp_path / "none.html")
    assert "No attempt could be graded." in read(tmp_path / "none.html")[0]


def test_the_page_of_a_comparison_plots_every_task(tasks, tmp_path):
    for name, rewards in (("a", [[0.0], [0.5]]), ("b", [[1.0], [0.25]])):
        write_json(tmp_path / f"{name}.json", result(tasks, rewards))
    compared = compare(tmp_path / "a.json", tmp_path / "b.json")
    write_comparison(compared, "a", "b", tmp_path / "c.html")
    text, source = read(tmp_path / "c.html")
    assert "difference +0.375" in text and "1 tasks are better, 1 worse, 0 equal" in text
    assert source.count("<circle") >= 2 and "<one>: 0.000, 1.000" in text
