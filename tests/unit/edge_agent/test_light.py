"""Promise 6: what an agent imports, and that it needs no more than the core list of packages."""

import re
import subprocess
import sys
import textwrap
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(program: str) -> str:
    code = textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def core_modules() -> set[str]:
    """Top-level modules of the packages that ``pip install glassfleet`` brings, theirs included."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted, todo = set(), [re.split(r"[^A-Za-z0-9._-]", entry)[0] for entry in listed]
    while todo:
        name = todo.pop().lower().replace("_", "-")
        if name in wanted:
            continue
        wanted.add(name)
        needed = [entry for entry in requires(name) or [] if "extra ==" not in entry]
        todo.extend(re.split(r"[^A-Za-z0-9._-]", entry)[0] for entry in needed)
    return {
        module
        for module, owners in packages_distributions().items()
        if any(owner.lower().replace("_", "-") in wanted for owner in owners)
    }


def test_agent_learns_and_scores_with_the_core_packages_alone(tmp_path):
    allowed = sorted(core_modules() | {"schemas", "glassfleet", "broker", "edge_agent", *sys.stdlib_module_names})
    run(
        f"""
        import sys
        allowed = set({allowed!r})

        class OnlyCore:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] not in allowed and not name.startswith(("_", "builtins")):
                    raise ModuleNotFoundError(f"not on a vehicle: {{name}}", name=name)

        sys.meta_path.insert(0, OnlyCore())
        import edge_agent.runner
        import numpy as np
        from edge_agent.session.answers import client_of
        from edge_agent.models.evaluation import learn_in_steps, predict_in_blocks
        from edge_agent.session.outbox import Outbox
        from glassfleet import catalogue
        from glassfleet.data.dataset import Dataset
        from glassfleet.data.domain import pooled_domain

        assert "frt" in catalogue.names()
        assert client_of("domain") is not None
        rng = np.random.default_rng(0)
        X = rng.random((100, 3))
        data = Dataset(("a", "b", "c"), "y", X, X[:, 0] + X[:, 1])
        domain = pooled_domain(data.features, "y", data.X, data.y)
        scheme = catalogue.load("frt")
        (model,) = [step for step in learn_in_steps(scheme, {{}}, domain, data) if step is not None]
        assert predict_in_blocks(model, X).shape == (100,)
        assert "sklearn" not in sys.modules
        """
    )


def test_agent_uses_one_blas_thread_unless_told_otherwise():
    program = (
        "import os; os.environ.pop('OPENBLAS_NUM_THREADS', None); {}; import edge_agent; "
        "print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    assert run(program.format("pass")).strip() == "1"
    assert run(program.format("os.environ['OPENBLAS_NUM_THREADS'] = '3'")).strip() == "3"


def test_session_and_identity_are_pure():
    for name in ("session/session", "session/events", "messages/duplicate_id"):
        text = (ROOT / "edge_agent" / f"{name}.py").read_text()
        imported = set(re.findall(r"^(?:from|import) (edge_agent\.[\w.]+|\w+)", text, re.MULTILINE))
        assert imported <= {
            "__future__",
            "annotated_types",
            "collections",
            "dataclasses",
            "typing",
            "schemas",
            "edge_agent.session.events",
        }
