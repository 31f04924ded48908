"""An app of Flower's, as its quickstart with numpy: vehicles send back the arrays that they were sent."""

from __future__ import annotations

import time

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg


def train(message: Message, context: Context) -> Message:  # noqa: ARG001 - the interface's
    """Answer at once: what is measured is the way there and back."""
    arrays = ArrayRecord(message.content["arrays"].to_numpy_ndarrays())
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
    return Message(content=content, reply_to=message)


def main(grid: Grid, context: Context) -> None:
    """Average the arrays of all vehicles, and print after each round how long it took."""
    vehicles, rounds = int(context.run_config["vehicles"]), int(context.run_config["rounds"])
    wanted = {"min_train_nodes": vehicles, "min_available_nodes": vehicles}
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, **wanted)
    arrays = ArrayRecord([np.zeros(int(context.run_config["bytes"]) // 8)])
    for _ in range(rounds):
        begun = time.perf_counter()
        arrays = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1).arrays
        print("round took", time.perf_counter() - begun, flush=True)


client = ClientApp()
client.train()(train)
server = ServerApp()
server.main()(main)
