import pytest

from sandbox.errors import InputError
from sandbox.evaluate import EvalConfig, evaluate
from sandbox.importing import import_tasks
from sandbox.task import Task

SUMMARY = "=========== short test summary info ==========="


@pytest.fixture
def write_tb1(tmp_path):
    """A function that writes a Terminal-Bench 1 task whose tests print `lines` once answer.txt is there."""

    def write(name="fix-it", yaml="", **files):
        folder = tmp_path / "suite" / "tasks" / name
        (folder / "tests").mkdir(parents=True)
        (folder / "data").mkdir()
        (folder / "data/in.txt").write_text("5\n")
        texts = {
            "task.yaml": "instruction: |-\n  Write the double of in.txt to answer.txt.\ndifficulty: easy\n"
            "category: data\ntags: [a, b]\nmax_agent_timeout_sec: 120.0\n" + yaml,
            "Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY data/ /app/\n",
            "docker-compose.yaml": "services:\n  client:\n    build: {}\n",
            "run-tests.sh": 'bash "$TEST_DIR/check.sh"\n',
            "tests/check.sh": f"echo '{SUMMARY}'\n"
            '[ "$(cat /app/answer.txt)" = 10 ] && echo "PASSED test_a" || echo "FAILED test_a"\n'
            'echo "XFAIL test_b"\n',
            "solution.sh": "#!/bin/bash\necho $(( $(cat in.txt) * 2 )) > answer.txt\n",
            **files,
        }
        for path, text in texts.items():
            if text is not None:
                (folder / path).write_text(text)
        return folder

    return write


def play(folder, agent):
    """Without the network that such tasks may have: bubblewrap gives none."""
    for path in folder.glob("*/task.toml"):
        path.write_text(path.read_text().replace("allow_internet = true", "allow_internet = false"))
    return evaluate(EvalConfig(tasks=str(folder), agent=agent, progress=False))


def test_a_terminal_bench_1_task_pays_for_its_solution_alone(write_tb1, tmp_path):
    write_tb1()
    report = import_tasks(tmp_path / "suite", tmp_path / "out")
    assert report.imported == ["fix-it"] and report.refused == {}
    task = Task.load(tmp_path / "out/fix-it")
    assert task.instruction == "Write the double of in.txt to answer.txt.\n"
    assert (task.agent_timeout, task.verifier_timeout, task.workdir) == (120.0, 60.0, "/app")
    assert task.metadata["category"] == "data" and task.metadata["tags"] == ["a", "b"] and task.allow_network
    given = {str(path.relative_to(task.path)) for path in task.path.rglob("*") if path.is_file()}
    assert "environment/data/in.txt" in given and "environment/run-tests.sh" not in given
    assert play(tmp_path / "out", "oracle")["tasks"] == {"fix-it": [1.0]}
    assert play(tmp_path / "out", "noop")["tasks"] == {"fix-it": [0.0]}


def test_tests_that_report_nothing_solve_nothing(write_tb1, tmp_path):
    write_tb1(**{"tests/check.sh": f"echo 'PASSED before'\necho '{SUMMARY}'\n"})
    import_tasks(tmp_path / "suite", tmp_path / "out")
    assert play(tmp_path / "out", "oracle")["tasks"] == {"fix-it": [0.0]}


def test_a_solution_in_steps_is_played(write_tb1, tmp_path):
    steps = "- command: cat in.txt\n  block: true\n- command: echo 10 > answer.txt\n  block: true\n"
    write_tb1("plain", **{"solution.sh": None, "solution.yaml": steps})
    keys = "- command: echo 10 > answer.txt; touch /tmp/x\n  block: true\n- command: exit\n  block: false\n"
    write_tb1("keys", **{"solution.sh": None, "solution.yaml": keys})
    import_tasks(tmp_path / "suite", tmp_path / "out")
    assert (tmp_path / "out/plain/solution/solve.sh").is_file()
    assert '{"keys": ["exit", "Enter"]}' in (tmp_path / "out/keys/solution/steps.jsonl").read_text()
    assert not (tmp_path / "out/keys/solution/solve.sh").exists()
    assert play(tmp_path / "out", "oracle")["tasks"]["plain"] == [1.0]


def test_harbor_folders_are_copied_as_they_are(write_task, tmp_path):
    folder = write_task("two")
    report = import_tasks(folder.parent, tmp_path / "out")
    assert report.imported == ["two"]
    for path in folder.rglob("*"):
        copy = tmp_path / "out/two" / path.relative_to(folder)
        assert copy.is_dir() if path.is_dir() else copy.read_bytes() == path.read_bytes()
    with pytest.raises(InputError, match="is there already"):
        import_tasks(folder.parent, tmp_path / "out")


def test_what_cannot_be_imported_is_refused_with_a_reason_and_leaves_nothing(write_tb1, tmp_path):
    write_tb1("good")
    write_tb1("parser", yaml="parser_name: swebench\n")
    write_tb1("many", **{"docker-compose.yaml": "services:\n  client: {}\n  db: {}\n"})
    write_tb1("bare", **{"run-tests.sh": None})
    write_tb1("torn", **{"task.yaml": "instruction: [\n"})
    write_tb1("late", yaml="max_test_timeout_sec: never\n")
    report = import_tasks(tmp_path / "suite", tmp_path / "out")
    assert report.imported == ["good"] and [p.name for p in (tmp_path / "out").iterdir()] == ["good"]
    reasons = {path.rpartition("/")[2]: reason for path, reason in report.refused.items()}
    for name, reason in {
        "parser": "is 'swebench'", "many": "more containers (db)", "bare": "run-tests.sh is missing",
        "torn": "while parsing", "late": "max_test_timeout_sec is 'never'",
    }.items():  # fmt: skip
        assert reason in reasons[name]
    with pytest.raises(InputError, match="has no task"):
        import_tasks(tmp_path / "out/good/tests", tmp_path / "none")
