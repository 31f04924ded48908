"""Models for elsewhere, as texts: a standard (FML), plain C for small devices, pictures.

Everything here is pure: a model goes in, a text comes out, and nothing is written. :func:`export` knows all the
formats by name; docs/reference/exports.md says what each holds and how it was checked.
"""

from glassfleet.export.c_header import to_c
from glassfleet.export.fml import to_fml
from glassfleet.export.formats import FORMATS, export, read_model

__all__ = ["FORMATS", "export", "read_model", "to_c", "to_fml"]
