"""The process on a vehicle: reads its rows, answers rounds, scores and serves models."""

import os

# Before numpy is imported: an agent shares its processor with the vehicle's own work, and OpenBLAS would reserve memory
# for a thread per core. Whoever wants more sets the variable.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
