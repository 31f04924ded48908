"""The papers' protocols (folds, shuffles, spreads), and the central references to compare with."""
