"""One vehicle's side of the runs: rules, frozen rows, answers that wait for a receipt."""
