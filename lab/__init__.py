"""The laboratory: papers, experiments, data sets, demo, chaos, benchmarks. Nothing outside imports it."""
