"""One vehicle's side of the runs: rules, snapshots of rows, answers that wait for a receipt."""
