"""A vehicle's part in runs: the pure session, snapshots of rows, answers, and their outbox."""
