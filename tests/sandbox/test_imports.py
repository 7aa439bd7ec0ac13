import json
import subprocess
import sys

HEAVY = ("jax", "flax", "optax", "orbax", "torch", "transformers", "t1_jax")


def test_the_service_loads_no_learner_library():
    code = (
        "import sys, json, sandbox.service, sandbox.evaluate, sandbox.demonstrate;"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
