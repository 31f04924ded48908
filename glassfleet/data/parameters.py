"""What is wrong with the parameters that a scheme was given, in words: the same wherever somebody gives them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def parameter_fault(scheme: str, parameters: type[BaseModel], fault: ValidationError, before: str = "") -> str:
    """Return the first fault of parameters in words.

    Parameters
    ----------
    scheme : str
        Its name.
    parameters : type of pydantic.BaseModel
        The scheme's ``Parameters``.
    fault : pydantic.ValidationError
        Of these.
    before : str
        Stands before the name of a parameter that has a wrong value.

    Returns
    -------
    str
        For a name that the scheme does not have: the nearest one, and all it has.
    """
    first = fault.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "together"
    if first["type"] != "extra_forbidden" or len(first["loc"]) != 1:
        return f"{before}{where}: {first['msg']}"
    known = list(parameters.model_fields)
    near = difflib.get_close_matches(where, known, 1)
    meant = f"; did you mean {near[0]}?" if near else "."
    return f"no parameter {where!r} in scheme {scheme}{meant} It has: {', '.join(known) or 'none'}"
