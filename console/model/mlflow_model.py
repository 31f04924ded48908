"""A published model as a registered model of MLflow: the document as an artifact, a loader module, no pickle.

What MLflow stores is a folder with the model's document (``model.json``), a page about it and an ``MLmodel`` file whose
``python_function`` flavour names this module as its loader. Whoever loads the model needs glassfleet installed;
``mlflow.pyfunc.load_model(uri)`` forecasts with ``predict(rows)``, and its ``get_raw_model()`` is the model itself, for
``glassfleet.explain``.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassfleet.explain import as_row, explain_row
from schemas.documents import canonical_json, document_digest
from schemas.errors import DocumentError, StorageError

if TYPE_CHECKING:
    from glassfleet.model.protocol import Model

DOCUMENT, PAGE = "model.json", "model.html"
EXPERIMENT = "glassfleet"


def register(model: Model, name: str, tracking_uri: str, *, tags: Mapping[str, str], page: str) -> dict[str, str]:
    """Put a model into an MLflow run of its own, and register it.

    Parameters
    ----------
    model : Model
    name : str
        Registered model; made when it is new, else it gets one more version.
    tracking_uri : str
        Of the MLflow server, or ``sqlite:///FILE``.
    tags : mapping of str to str
        Put on the run and the version: run, cohort ...
    page : str
        HTML about the model.

    Returns
    -------
    dict of str to str
        ``{name, version, run_id, model_uri}``.

    Raises
    ------
    StorageError
        MLflow cannot be reached, or refuses.
    """
    # MLflow would report its use to its makers; here nothing leaves the machine unless the user wants it.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient  # an extra
    from mlflow.exceptions import MlflowException

    digest = document_digest(model.to_document())
    tags = {**tags, "glassfleet.digest": digest, "glassfleet.contract.scheme": model.scheme}
    try:
        client = MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri)
        known = client.get_experiment_by_name(EXPERIMENT)
        experiment = known.experiment_id if known is not None else client.create_experiment(EXPERIMENT)
        run = client.create_run(experiment, run_name=name, tags=dict(tags)).info
        for key, value in model.complexity().items():
            client.log_metric(run.run_id, f"complexity_{key}", float(value))
        with tempfile.TemporaryDirectory() as folder:
            write_folder(model, Path(folder), page, run.run_id)
            client.log_artifacts(run.run_id, folder, "model")
        client.set_terminated(run.run_id)
        if not any(result.name == name for result in client.search_registered_models(f"name = '{name}'")):
            client.create_registered_model(name)
        version = client.create_model_version(name, f"{run.artifact_uri}/model", run.run_id, tags=dict(tags)).version
    except (MlflowException, OSError) as fault:
        raise StorageError(f"MLflow at {tracking_uri} cannot take the model: {str(fault)[:300]}") from fault
    return {
        "name": name,
        "version": str(version),
        "run_id": str(run.run_id),
        "model_uri": f"models:/{name}/{version}",
    }


def write_folder(model: Model, folder: Path, page: str, run_id: str = "") -> None:
    """Write the folder that MLflow calls a model."""
    from mlflow.models import Model as Described  # an extra

    (folder / DOCUMENT).write_bytes(canonical_json(model.to_document()))
    (folder / PAGE).write_text(page, encoding="utf-8")
    (folder / "requirements.txt").write_text("glassfleet\nmlflow\n", encoding="utf-8")
    described = Described(run_id=run_id or None)
    described.add_flavor(
        "python_function", loader_module=__name__, data=DOCUMENT, env={"virtualenv": "python_env.yaml"}
    )
    described.save(str(folder / "MLmodel"))
    (folder / "python_env.yaml").write_text("dependencies:\n- -r requirements.txt\n", encoding="utf-8")


class MlflowForecaster:
    """What MLflow calls: a model that takes tables.

    Parameters
    ----------
    model : Model
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> list[Any]:
        """Return forecasts, or explanations in their JSON form.

        Parameters
        ----------
        model_input : data frame, dict of columns, list of dicts, or array of shape (n, F)
        params : mapping or None
            ``{"explain": True}`` asks for explanations.

        Raises
        ------
        DataError
            A row lacks an input, or has one that is no number.
        """
        rows = [as_row(self.model.domain, row) for row in _rows(model_input)]
        if params is not None and params.get("explain"):
            return [explain_row(self.model, row).to_dict() for row in rows]
        return list(self.model.predict(np.array(rows)).tolist()) if rows else []

    def get_raw_model(self) -> Model:
        """Return the model itself."""
        return self.model


def _rows(given: Any) -> Sequence[Any]:
    if hasattr(given, "to_dict"):  # a data frame
        return list(given.to_dict(orient="records"))
    if isinstance(given, Mapping):
        return [dict(zip(given, values, strict=True)) for values in zip(*given.values(), strict=True)]
    return list(given)


def _load_pyfunc(path: str) -> MlflowForecaster:
    """Load what :func:`write_folder` wrote; MLflow calls it with the path of the document."""
    from glassfleet.contract import catalogue  # the schemes are not needed to register

    try:
        document: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        return MlflowForecaster(catalogue.load(str(document["scheme"])).from_document(document))
    except (OSError, KeyError, TypeError, ValueError) as fault:
        raise DocumentError(f"{path} holds no model document: {fault}") from fault
