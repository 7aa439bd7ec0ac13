import json
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from sandbox.errors import InputError
from t1_jax.config import load_config
from t1_jax.tools import pod
from t1_jax.tools.pod import XLA_FLAGS, PodConfig, manifest, script

ROOT = Path(__file__).parents[2]
CONFIG = PodConfig(
    name="t1", command=("sft", "--config", "a b.yaml"), topology="v5p:2x2x2", zone="z", project="p", spot=True
)
CLUSTER = PodConfig(name="t1", command=("rl",), topology="v6e:4x4", target="kubernetes", image="image:1")


def test_the_manifest_is_of_the_published_schema():
    """JobSet's own fields wrap a Job, which Kubernetes publishes the schema of."""
    found = manifest(CLUSTER)
    (job,) = found["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "t1"}, "spec": spec}
    kubernetes_validate.validate(json.loads(json.dumps(whole)), "1.31", strict=True)
    assert found["apiVersion"] == "jobset.x-k8s.io/v1alpha2" and found["kind"] == "JobSet"
    assert set(job) == {"name", "replicas", "template"}
    assert spec["parallelism"] == spec["completions"] == 4
    pod_spec = spec["template"]["spec"]
    assert pod_spec["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    environment = {entry["name"]: entry["value"] for entry in pod_spec["containers"][0]["env"]}
    assert environment["LIBTPU_INIT_ARGS"].split() == list(XLA_FLAGS["v6e"])


def test_a_wrong_manifest_would_be_refused():
    spec = manifest(CLUSTER)["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec["parallelism"] = "four"
    whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "t1"}, "spec": spec}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(whole, "1.31", strict=True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"command": ()}, "pod.command is empty"),
        ({"topology": "v9:2x2"}, "topology 'v9:2x2': expected one of v5p"),
        ({"topology": "v5p:2xtwo"}, "expected one of v5p"),
        ({"target": "kubernetes"}, "pod.image is missing"),
        ({"zone": ""}, "pod.zone is missing"),
        ({"max_restarts": -1}, "pod.max_restarts is -1"),
    ],
)
def test_bad_configs_are_refused(fields, message):
    values = {"name": "t1", "command": ("sft",), "topology": "v5p:2x2x1", "zone": "z"}
    with pytest.raises(InputError, match=message):
        PodConfig(**{**values, **fields})


def test_a_dry_run_prints_what_a_run_runs(tmp_path, monkeypatch, capsys):
    """gcloud is a program that writes down how it was called; the second start of the hosts succeeds."""
    calls = tmp_path / "calls"
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(
        f"#!{sys.executable}\nimport sys, pathlib\n"
        f"calls = pathlib.Path({str(calls)!r})\n"
        "before = calls.read_text() if calls.exists() else ''\n"
        "with calls.open('a') as file: file.write(repr(sys.argv[1:]) + '\\n')\n"
        "print('ACTIVE' if 'describe' in sys.argv else 'hello')\n"
        "sys.exit(9 if 'ssh' in sys.argv and before.count('ssh') < 2 else 0)\n"
    )
    gcloud.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    config = PodConfig(
        name="t1", command=("sft",), topology="v5p:2x2x2", target="queued", zone="z", logs=tmp_path / "logs"
    )
    assert pod.run(config, dry_run=True) == 0
    printed = capsys.readouterr().out
    assert pod.run(config, sleep=lambda _: None) == 0
    logs = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert {"host-0.1.log", "host-1.1.log"} <= set(logs)
    assert "hello" in (tmp_path / "logs" / "host-1.1.log").read_text()
    assert printed.count("--worker=") == config.hosts == 2
    assert "--worker=0" in calls.read_text() and "'sft'" not in printed
    assert "LIBTPU_INIT_ARGS" in printed and "queued-resources create t1" in printed


def test_bad_input_is_not_tried_again(tmp_path, monkeypatch):
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(f"#!/bin/sh\necho x >> {tmp_path}/calls\nexit 2\n")
    gcloud.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    config = PodConfig(name="t1", command=("sft",), topology="v5p:2x2x1", zone="z", logs=tmp_path / "logs")
    assert pod.run(config, sleep=lambda _: None) == 2
    assert (tmp_path / "calls").read_text() == "x\n"


def test_words_are_quoted_for_the_hosts_shell():
    line = script(CONFIG).splitlines()[0]
    assert "a b.yaml" in line and "--spot" not in line  # an existing slice is not asked for
    assert "--worker=0" in line and line.endswith("host-0.log 2>&1 &")


CONFIGS = sorted((ROOT / "configs" / "pod").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_configs_say_what_would_run(path):
    done = subprocess.run(
        [sys.executable, "launch.py", "pod", "--config", str(path), "--dry-run"],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == script(load_config(PodConfig, path))
    if "kubernetes" in path.stem:
        body = done.stdout.split("<<EOF\n")[1].removesuffix("EOF\n")
        assert yaml.safe_load(body) == manifest(load_config(PodConfig, path))
