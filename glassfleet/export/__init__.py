"""Models for elsewhere, as texts and bytes: a standard (FML), plain code for small devices, pages and pictures.

Everything here is pure: a model goes in, text or bytes come out, and nothing is written. :func:`export` knows all the
formats by name; docs/reference/exports.md says what each holds and how it was checked.
"""

from glassfleet.export.c_header import to_c
from glassfleet.export.fml import from_fml, to_fml
from glassfleet.export.formats import FORMATS, export, read_model
from glassfleet.export.page import to_html, to_markdown
from glassfleet.export.python_file import to_python

__all__ = ["FORMATS", "export", "from_fml", "read_model", "to_c", "to_fml", "to_html", "to_markdown", "to_python"]
