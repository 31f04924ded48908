"""What is known of each dataset: home, licence, shape, digest of its values, and where its file can be fetched."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Literal

KEEL = "https://sci2s.ugr.es/keel/datasets.php"
UCI = "https://archive.ics.uci.edu/dataset"
RAW = "https://raw.githubusercontent.com"

KEEL_NOTE = "KEEL states no licence; free for research, cite KEEL (Alcala-Fdez et al. 2011)"
UCI_NOTE = "CC BY 4.0 (UCI Machine Learning Repository)"
SHIPPED_NOTE = "scikit-learn ships it: no download"
COPY_NOTE = "the copy that is fetched lies in a third party's repository; the home's terms apply"


@dataclass(frozen=True)
class Source:
    """Where a dataset's file can be fetched, and what must be done to it.

    Attributes
    ----------
    urls : tuple of str
        Files whose rows belong together, in this order.
    names : tuple of str
        Column names, where the file has no header row.
    target : str
        Column to move to the end; empty: it is there.
    without : tuple of str
        Columns to leave out.
    strip_last : str
        Cut from the end of the last column's cells.
    shipped : str
        Name of a set that scikit-learn has in its package, instead of `urls`: nothing is downloaded.
    """

    urls: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    target: str = ""
    without: tuple[str, ...] = ()
    strip_last: str = ""
    shipped: str = ""


@dataclass(frozen=True)
class Known:
    """A dataset.

    Attributes
    ----------
    name : str
        Its file is ``<name>.csv.gz``.
    task : {"regression", "classification"}
    rows, features : int
        Its shape, the target not counted.
    target : str
    used_by : str
        Which papers.
    home : str
        Where it was published.
    licence : str
        What is known of its terms.
    digest : str
        SHA-256 of its values, see :meth:`lab.datasets.fetch.RawTable.digest`.
    source : Source or None
        None: it cannot be fetched by this program; `note` says why.
    note : str
    """

    name: str
    task: Literal["regression", "classification"]
    rows: int
    features: int
    target: str
    used_by: str
    home: str
    licence: str
    digest: str
    source: Source | None = None
    note: str = field(default="")

    @property
    def file(self) -> str:
        """Name of its file in the data folder."""
        return f"{self.name}.csv.gz"


_IMBALANCED = f"{RAW}/JusciAvelino/imbalancedRegression"
_RULES = f"{RAW}/asieriko/FederatedRuleLearning"
_ADULT_NAMES = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip
_NURSERY_NAMES = ("parents", "has_nurs", "form", "children", "housing", "finance", "social", "health", "class")
_VEHICLES = (
    (2708, "474f8a00270fb9f179e0f5fcc215732209e8f070e8d152e100f387eae276d4ad"),
    (2780, "fa63825927b8a808b8cdf0c52e2bc7b5bbed1e5a822cf6d60ddf1d7ca0692ee0"),
    (2848, "513ad3a5754856e7c7dabe7ebdf78c4a9f0a61e45eb13338c07220dabc3ed829"),
)

_ALL = (
    Known(
        "weather_izmir", "regression", 1461, 9, "Mean_temperature", "FRT, TSK", KEEL, KEEL_NOTE,
        "db6b79d33e948463b654b81d350853c45274e50dfaaf2914c9453c545a779dbc",
        Source((f"{RAW}/jlcorcuera/fedxai-lib/a3edb622/datasets/WeatherIzimir.csv",)), COPY_NOTE,
    ),
    Known(
        "mortgage", "regression", 1049, 15, "30Y-CMortgageRate", "FRT, TSK", KEEL, KEEL_NOTE,
        "6933e7cb5083c5bd271536d1133cd176ca3a109e64b465c0ba9eec3bba6b9e90",
        Source((f"{_IMBALANCED}/7c937a6619e8955f659466674de5b0981eae56ad/data/mortgage.csv",),
               target="30Y-CMortgageRate"), COPY_NOTE,
    ),
    Known(
        "california", "regression", 20640, 8, "MedianHouseValue", "FRT, TSK", KEEL, KEEL_NOTE,
        "5c1a7de03bbc0e6bfdc1f10af0c2ddd3975e9911d1a20f30848ca8ce6bdebfa8",
        Source((f"{_IMBALANCED}/7c937a6619e8955f659466674de5b0981eae56ad/data/california.csv",),
               target="MedianHouseValue"), COPY_NOTE,
    ),
    Known(
        "compactiv", "regression", 8192, 21, "usr", "FRT", KEEL, KEEL_NOTE,
        "73417c607c8347815858b710e80b0d1368de0e34a88f8ec60cdf466e5014228b",
        Source((f"{_IMBALANCED}/1a9ef66f44d957d337a5b2b3c8d431b54a1ae005/data/compactiv.csv",), target="usr"),
        COPY_NOTE,
    ),
    Known(
        "kinematics", "regression", 8192, 8, "y", "FRT",
        "https://www.dcc.fc.up.pt/~ltorgo/Regression/DataSets.html", "no licence stated; free for research",
        "5bea8b503d19f127c6e7f3842dcbbc5e66c5dd7b5218b2f4e214fe35ef8d5bda",
        Source((f"{RAW}/renatopp/arff-datasets/c59f172882592bb58982cc54d2d3c8a2b57e9b73/regression/kin8nm.arff",)),
        COPY_NOTE,
    ),
    Known(
        "magic", "classification", 19020, 10, "class", "FRBC", f"{UCI}/159/magic+gamma+telescope", UCI_NOTE,
        "5f98a435288ca4ec951241e7d63fe7727912e7c12b8f83afb54030b84d043f49",
        Source((f"{_RULES}/c9e3e59f87fce74368cf6bb0137eebada024ba42/datasets/MagicTelescope.csv",), without=("ID",)),
        COPY_NOTE,
    ),
    Known(
        "adult", "classification", 48842, 14, "income", "FedGA", f"{UCI}/2/adult", UCI_NOTE,
        "20a250f809b678e1d60b4cfd3e2524fdab9934137d6896ef653b67e9aa7d51c6",
        Source((f"{RAW}/jbrownlee/Datasets/master/adult-train.csv", f"{RAW}/jbrownlee/Datasets/master/adult-test.csv"),
               names=_ADULT_NAMES, strip_last="."),
        f"training rows, then test rows; {COPY_NOTE}",
    ),
    Known(
        "nursery", "classification", 12960, 8, "class", "FedGA", f"{UCI}/76/nursery", UCI_NOTE,
        "00dd7418da30fa88d2a97bde73e176c0d8b6926757da761f2b7686747bc0926c",
        Source((f"{RAW}/Chaoukia/RL-for-Decision-Trees/feb1df33/data/nursery.data",), names=_NURSERY_NAMES), COPY_NOTE,
    ),
    Known(
        "compas", "classification", 4966, 11, "target", "FedGA",
        "https://github.com/propublica/compas-analysis", "no licence stated for the balanced subset (OpenML 361286)",
        "ab75b2f9d0a937dd9a290fb917fbc38844cdc6311798bdba9619eca1b33d6d5e", None,
        "the balanced benchmark subset: its labels were put together from two sources by hand; copy the file",
    ),
    Known(
        "abalone", "regression", 4177, 8, "Class_Rings", "FedGA", f"{UCI}/1/abalone", UCI_NOTE,
        "514e40ba8add63bcb0d1b0579bfd6fa5fba4d243b0f98a0280e3973726ba7585",
        Source((f"{RAW}/renatopp/arff-datasets/c59f172882592bb58982cc54d2d3c8a2b57e9b73/regression/abalone.arff",)),
        COPY_NOTE,
    ),
    Known(
        "wine_quality", "regression", 6497, 11, "quality", "FedGA", f"{UCI}/186/wine+quality", UCI_NOTE,
        "847413dd4c3180bb2303a4c88b25b7c58d697cd46cbddc5e513e518d15b16397",
        Source((f"{_IMBALANCED}/1a9ef66f44d957d337a5b2b3c8d431b54a1ae005/data/wine_quality.csv",), target="quality"),
        f"red wines, then white ones; {COPY_NOTE}",
    ),
    Known(
        "diabetes", "regression", 442, 10, "progression", "none",
        "https://www4.stat.ncsu.edu/~boos/var.select/diabetes.html", "no licence stated; Efron et al. 2004",
        "0f9c4201ae763c3582a40d4be85f12dff18f5ca8dea51da6152c4b526f5d93ba",
        Source(shipped="diabetes"), SHIPPED_NOTE,
    ),
    Known(
        "wine", "classification", 178, 13, "class", "none", f"{UCI}/109/wine", UCI_NOTE,
        "c93befb7a29ec644dd1e24fe9e965a6e2f93c69c2ca4b1dff1c9b6913858f6bc",
        Source(shipped="wine"), SHIPPED_NOTE,
    ),
    Known(
        "breast_cancer", "classification", 569, 30, "class", "none",
        f"{UCI}/17/breast+cancer+wisconsin+diagnostic", UCI_NOTE,
        "46f739354bc2e50be4505f6385d5896eabb7a47e8d232e09a9aafb3968105c1f",
        Source(shipped="breast_cancer"), SHIPPED_NOTE,
    ),
    *(
        Known(
            f"qoe/vehicle_{number}", "regression", rows, 16, "y", "FRT, FRBC, TSK",
            "https://docenti.ing.unipi.it/g.nardini/ai6g_qoe_dataset.html",
            "Apache-2.0 (Unipisa/OpenFL-XAI, where these rows are published)", digest, None,
            "rows of one vehicle, with a split column",
        )
        for number, (rows, digest) in enumerate(_VEHICLES)
    ),
)  # fmt: skip

DATASETS: Mapping[str, Known] = {known.name: known for known in _ALL}
"""By name."""

NO_FOLDER = (
    "no --data-dir (or GLASSFLEET_DATA): name the folder of the datasets. "
    "Without a download: glassfleet lab datasets fetch diabetes --data-dir DIR"
)
"""What a command says that needs one."""


def how_to_get(files: Container[str], folder: Path) -> str:
    """Return how files that are not in the folder get there, as a sentence without its point."""
    wanted = [known for known in _ALL if known.file in files]
    ways = [f"copy {known.file}: {known.note}" for known in wanted if known.source is None]
    if names := " ".join(known.name for known in wanted if known.source is not None):
        ways.insert(0, f"glassfleet lab datasets fetch {names} --data-dir {quote(str(folder))}")
    return "; ".join(ways)
