"""Crisp binary trees: rows prepared for them, growing, fitting of given structures, and the finished tree."""

from glassfleet.crisp.cuts import Columns, prepare
from glassfleet.crisp.forest import Forest
from glassfleet.crisp.model import CrispTreeModel
from glassfleet.crisp.tree import CrispTree

__all__ = ["Columns", "CrispTree", "CrispTreeModel", "Forest", "prepare"]
