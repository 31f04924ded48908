"""Private runs: exact sums over groups of vehicles, of which nobody sees a single vehicle's part. Pure."""
