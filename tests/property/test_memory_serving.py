"""Training and serving agree to the last bit: memory over a whole table, and row by row."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.data.dataset import Dataset
from glassfleet.data.lags import Memory, Recall, Recollection, remember

VALUES = st.floats(-1e6, 1e6, allow_nan=False, width=64)


@st.composite
def declared(draw) -> tuple[Memory, Dataset]:
    horizon = draw(st.integers(1, 3))
    uses_target = draw(st.booleans())
    inputs = []
    for index in range(draw(st.integers(1, 4))):
        difference, lag = draw(st.integers(0, 4)), draw(st.integers(0, 5))
        inputs.append(
            Recall(
                input=draw(st.sampled_from(["a", "b"])),
                difference=difference,
                lag=lag or int(not difference),
                name=f"n{index}",
            )
        )
    if uses_target:
        lag = horizon + draw(st.integers(0, 3))
        inputs.append(Recall(input="target", lag=lag, difference=draw(st.integers(0, 2)), name="nt"))
    start = "drop" if uses_target else draw(st.sampled_from(["hold", "drop"]))
    has_time = draw(st.booleans())
    memory = Memory(
        inputs=tuple(inputs),
        drive="trip",
        time="at" if has_time else "",
        step=draw(st.sampled_from([None, 1.0])) if has_time else None,
        horizon=horizon,
        start=start,
    )
    rows = []
    for trip in range(draw(st.integers(1, 3))):
        at = float(draw(st.integers(-5, 5)))
        for _ in range(draw(st.integers(0, 12))):
            rows.append((float(trip), at, draw(VALUES), draw(VALUES), draw(VALUES)))
            at += draw(st.sampled_from([1.0, 1.0, 1.0, 1.2, 3.0]))
    table = np.array(rows).reshape(len(rows), 5)
    return memory, Dataset(("trip", "at", "a", "b"), "y", table[:, :4], table[:, 4])


@given(declared(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_serving_gives_the_training_rows_bit_for_bit_whatever_is_declared(case, random):
    memory, data = case
    recollection = Recollection(memory)
    served, targets = [], []
    begun = 0
    for index, row in enumerate(data.X.tolist()):
        values = dict(zip(data.features, row, strict=True))
        before = data.X[index - 1] if index else None
        step = memory.step
        if before is not None and (
            values["trip"] != before[0] or (step is not None and abs(values["at"] - before[1] - step) > step / 2)
        ):
            begun = index
        known = index - memory.horizon
        full = recollection.push(values, observed=data.y[known] if known >= begun else None)
        if full is not None:
            kept = memory.extended(data.features)
            served.append([full[name] for name in kept])
            targets.append(data.y[index])
    learned = remember(data, memory)
    assert learned.features == memory.extended(data.features)
    assert learned.X.tobytes() == np.array(served).reshape(len(served), len(learned.features)).tobytes()
    assert learned.y.tobytes() == np.array(targets).tobytes()
    if memory.time and memory.start == "hold":
        order = list(range(data.rows))
        random.shuffle(order)
        shuffled = Dataset(data.features, data.target, data.X[order], data.y[order])
        assert np.array_equal(remember(shuffled, memory).X, learned.X[order])
