"""The laboratory: papers, experiments, datasets, demonstrations, faults. Nothing outside imports it."""
