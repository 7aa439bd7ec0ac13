"""Run a job of launch.py on every host of a TPU slice: over ssh, or as a JobSet on Kubernetes.

The same command goes to every host; the processes find each other as the platform announces them. A job
resumes from its run folder (a bucket or a shared disk), so that starting it again is all that a preemption
asks for.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from sandbox.errors import InputError
from t1_jax.tools.chips import parse_topology

# XLA flags by TPU generation, for LIBTPU_INIT_ARGS.
#   scoped_vmem_limit_kib: kernels' share of the fast memory; the grouped products' tiles want more than the
#     default 16 MiB on chips that have 128 MiB of it.
#   async_collective_fusion*, overlap_compute_collective: gathers of parameters and returns of expert outputs
#     run beside the products.
#   sparse_core_collective_offload*: gathers and scatters on SparseCores, which v6e and later have for it.
_OVERLAP = (
    "--xla_tpu_enable_async_collective_fusion=true",
    "--xla_tpu_enable_async_collective_fusion_fuse_all_gather=true",
    "--xla_tpu_enable_async_collective_fusion_multiple_steps=true",
    "--xla_tpu_overlap_compute_collective_tc=true",
    "--xla_enable_async_all_gather=true",
)
_OFFLOAD = (
    "--xla_tpu_enable_sparse_core_collective_offload_all_gather=true",
    "--xla_tpu_enable_sparse_core_collective_offload_reduce_scatter=true",
)
XLA_FLAGS: dict[str, tuple[str, ...]] = {
    "v5p": ("--xla_tpu_scoped_vmem_limit_kib=81920", *_OVERLAP),
    "v6e": ("--xla_tpu_scoped_vmem_limit_kib=81920", *_OFFLOAD),
    "tpu7x": ("--xla_tpu_scoped_vmem_limit_kib=61440", *_OFFLOAD),
}
# Names of the generation as Kubernetes nodes, accelerator types and virtual machines have them.
_NODES = {"v5p": "tpu-v5p-slice", "v6e": "tpu-v6e-slice", "tpu7x": "tpu7x"}
_RUNTIMES = {"v5p": "v2-alpha-tpuv5", "v6e": "v2-alpha-tpuv6e", "tpu7x": "v2-alpha-tpu7"}
_CHIPS_PER_HOST = 4
_BAD_INPUT, _INTERRUPTED = 2, 130  # launch.py's exit codes that no restart mends


@dataclass(frozen=True, kw_only=True)
class PodConfig:
    """A job and where it runs. `command` are the words after launch.py, such as [sft, --config, F]."""

    name: str
    command: tuple[str, ...]
    topology: str
    target: Literal["vm", "queued", "kubernetes"] = "vm"  # an existing slice, one to ask for, a cluster
    zone: str = ""
    project: str = ""
    spot: bool = False
    folder: str = "t1-jax"  # of the checkout on every host
    image: str = ""  # Kubernetes: a container image with the checkout as its working directory
    environment: dict[str, str] = field(default_factory=dict)
    max_restarts: int = 100
    logs: Path = Path("runs/pod")  # of this machine, a file for each host

    def __post_init__(self) -> None:
        parse_topology(self.topology)
        if not self.command:
            raise InputError("pod.command is empty, expected the words after launch.py")
        if self.target == "kubernetes" and not self.image:
            raise InputError("pod.image is missing; expected a container image for the target kubernetes")
        if self.target != "kubernetes" and not self.zone:
            raise InputError(f"pod.zone is missing; expected a zone for the target {self.target}")
        if self.max_restarts < 0:
            raise InputError(f"pod.max_restarts is {self.max_restarts}, expected 0 or more")

    @property
    def generation(self) -> str:
        """The chip: v5p, v6e or tpu7x."""
        return self.topology.partition(":")[0]

    @property
    def hosts(self) -> int:
        """Machines of the slice."""
        return max(1, parse_topology(self.topology)[1] // _CHIPS_PER_HOST)


def environment(config: PodConfig) -> dict[str, str]:
    """What every process finds in its environment; the config's own values last."""
    return {
        "T1_DISTRIBUTED": "auto",
        "JAX_PLATFORMS": "tpu,cpu",
        "LIBTPU_INIT_ARGS": " ".join(XLA_FLAGS[config.generation]),
        **config.environment,
    }


def host_command(config: PodConfig) -> str:
    """The shell line of a host; its exit code is the job's."""
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment(config).items())
    words = shlex.join(["python3", "launch.py", *config.command])
    return f"cd {shlex.quote(config.folder)} && env {variables} {words}"


def create_command(config: PodConfig) -> list[str]:
    """Ask for the slice; a queued resource is granted when there is room."""
    chips = parse_topology(config.topology)[1]
    # v5p is sold by the TensorCore, of which a chip has two.
    size = 2 * chips if config.generation == "v5p" else chips
    words = ["gcloud", "compute", "tpus", "queued-resources", "create", config.name,
             f"--node-id={config.name}", f"--accelerator-type={config.generation}-{size}",
             f"--runtime-version={_RUNTIMES[config.generation]}", *_place(config)]  # fmt: skip
    return [*words, "--spot"] if config.spot else words


def state_command(config: PodConfig) -> list[str]:
    """Print the queued resource's state, such as ACTIVE or SUSPENDED."""
    return ["gcloud", "compute", "tpus", "queued-resources", "describe", config.name,
            "--format=value(state.state)", *_place(config)]  # fmt: skip


def delete_command(config: PodConfig) -> list[str]:
    """Give up a slice that was taken away, so that it can be asked for again."""
    return ["gcloud", "compute", "tpus", "queued-resources", "delete", config.name, "--force", "--quiet",
            *_place(config)]  # fmt: skip


def ssh_command(config: PodConfig, host: int) -> list[str]:
    """Run the job on one host."""
    return ["gcloud", "compute", "tpus", "tpu-vm", "ssh", config.name, f"--worker={host}", *_place(config),
            f"--command={host_command(config)}"]  # fmt: skip


def _place(config: PodConfig) -> list[str]:
    return [f"--zone={config.zone}", *([f"--project={config.project}"] if config.project else [])]


def manifest(config: PodConfig) -> dict[str, Any]:
    """A JobSet (jobset.x-k8s.io/v1alpha2): one Job with a pod for each host of the slice.

    All pods start again when one fails, unless launch.py says that its input is bad: that fails the JobSet.
    Logs are the pods' (kubectl logs -l jobset.sigs.k8s.io/jobset-name=NAME).
    """
    shape = config.topology.partition(":")[2]
    chips = min(_CHIPS_PER_HOST, parse_topology(config.topology)[1])
    container = {
        "name": "t1",
        "image": config.image,
        "command": ["python3", "launch.py", *config.command],
        "env": [{"name": name, "value": value} for name, value in environment(config).items()],
        "ports": [{"containerPort": 8471}],  # between the TPU hosts' runtimes
        "resources": {"limits": {"google.com/tpu": chips}, "requests": {"google.com/tpu": chips}},
    }
    selector = {
        "cloud.google.com/gke-tpu-accelerator": _NODES[config.generation],
        "cloud.google.com/gke-tpu-topology": shape,
    }
    if config.spot:
        selector["cloud.google.com/gke-spot"] = "true"
    pod = {
        "restartPolicy": "Never",
        "subdomain": config.name,
        "nodeSelector": selector,
        "containers": [container],
    }
    job = {
        "parallelism": config.hosts,
        "completions": config.hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "t1", "operator": "In", "values": [_BAD_INPUT]},
                }
            ]
        },
        "template": {"spec": pod},
    }
    bad_input = {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": config.name,
            "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"},
        },
        "spec": {
            "failurePolicy": {"maxRestarts": config.max_restarts, "rules": [bad_input]},
            "replicatedJobs": [{"name": "slice", "replicas": 1, "template": {"spec": job}}],
        },
    }


def script(config: PodConfig) -> str:
    """Exactly what would run, for a reader."""
    if config.target == "kubernetes":
        return "kubectl apply -f - <<EOF\n" + yaml.safe_dump(manifest(config), sort_keys=False) + "EOF\n"
    lines = []
    if config.target == "queued":
        lines += [shlex.join(create_command(config)), f"# until ACTIVE: {shlex.join(state_command(config))}"]
    for host in range(config.hosts):
        lines.append(f"{shlex.join(ssh_command(config, host))} > {config.logs}/host-{host}.log 2>&1 &")
    lines += ["wait", f"# on failure, at most {config.max_restarts} times: again from the first line"]
    if config.target == "queued":
        lines.insert(-1, f"# when it was taken away: {shlex.join(delete_command(config))}")
    return "\n".join(lines) + "\n"


def run(config: PodConfig, dry_run: bool = False, sleep: Callable[[float], None] = time.sleep) -> int:
    """Run the job until it ends; returns its exit code. With `dry_run`, print what would run."""
    if dry_run:
        print(script(config), end="")
        return 0
    if config.target == "kubernetes":
        text = yaml.safe_dump(manifest(config), sort_keys=False)
        return subprocess.run(["kubectl", "apply", "-f", "-"], input=text, text=True).returncode
    for attempt in range(config.max_restarts + 1):
        if config.target == "queued":
            _obtain(config, sleep)
        code = _run_hosts(config, attempt)
        if code in (0, _BAD_INPUT, _INTERRUPTED):
            return code
        print(f"pod: exit code {code}, starting again (attempt {attempt + 1})", file=sys.stderr)
        sleep(10)
    return code


def _obtain(config: PodConfig, sleep: Callable[[float], None]) -> None:
    """Return when the slice is there. One that was taken away is asked for again."""
    while True:
        found = subprocess.run(state_command(config), capture_output=True, text=True)
        state = found.stdout.strip() if found.returncode == 0 else ""
        if state == "ACTIVE":
            return
        if state in ("SUSPENDED", "SUSPENDING", "FAILED"):
            subprocess.run(delete_command(config), check=True)
            state = ""
        if not state:
            subprocess.run(create_command(config), check=True)
        sleep(30)


def _run_hosts(config: PodConfig, attempt: int) -> int:
    """Start all hosts, a log each; the first to fail ends the others. Returns the exit code that counts."""
    config.logs.mkdir(parents=True, exist_ok=True)
    hosts = []
    for host in range(config.hosts):
        with (config.logs / f"host-{host}.{attempt}.log").open("ab") as log:
            hosts.append(subprocess.Popen(ssh_command(config, host), stdout=log, stderr=log))
    while any(process.poll() is None for process in hosts):
        if any(process.poll() not in (None, 0) for process in hosts):
            for process in hosts:
                process.terminate()
        time.sleep(0.2)
    codes = [process.returncode for process in hosts]
    return next((code for code in codes if code > 0), min(codes))
