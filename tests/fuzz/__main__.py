"""``python -m tests.fuzz --inputs 1000000 --seed 1 --json``: the long run (``make fuzz``); exit code 1 for findings."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import sys
import tempfile
import warnings
from pathlib import Path

from tests.fuzz.harness import fuzz, generator, limit_memory, makers
from tests.support.schedules import quiet


@quiet()
def main() -> int:
    """Run the fuzzer, or one input of it again."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="targets whose name contains this")
    parser.add_argument("--replay", metavar="TARGET", help="feed one input again, with its traceback")
    parser.add_argument("--index", type=int, default=0, help="which input to replay")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # numpy's, about numbers that were made to overflow
    if chosen.replay:
        with tempfile.TemporaryDirectory() as folder:
            target = makers(Path(folder))[chosen.replay][1]()
            print(target.feed(generator(chosen.seed, chosen.replay, chosen.index)))
        return 0
    limit_memory()
    report = fuzz(chosen.inputs, chosen.seed, only=chosen.only, say=lambda line: print(line, file=sys.stderr))
    document = report.to_document()
    if chosen.json:
        print(json.dumps(document, indent=2))
    else:
        for finding in document["findings"]:
            print(f"FINDING {finding}")
        print({key: value for key, value in document.items() if key not in ("outcomes", "findings")})
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
