"""Which paper's protocol a scheme is measured by."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from glassfleet.contract.scheme import Scheme, input_quantiles_of
from glassfleet.data.domain import INPUT_QUANTILES
from lab.protocols import fedga, frbc, tsk
from lab.protocols.paper import NESTED_KFOLD, PaperProtocol, quantile_domain

OF_SCHEMES = {"dp_tree": fedga.PROTOCOL, "fedga": fedga.PROTOCOL, "frbc": frbc.PROTOCOL, "tsk": tsk.PROTOCOL}


def protocol_of(scheme: Scheme, *, labels: bool = False) -> PaperProtocol:
    """Return the protocol of the scheme's paper; of other schemes, that of its purpose, with the limits that it wants.

    Parameters
    ----------
    scheme : Scheme
    labels : bool
        Whether the target is a class label; of interest for schemes with both purposes.
    """
    if "regression" not in scheme.purpose or labels:
        return OF_SCHEMES.get(scheme.name, frbc.PROTOCOL)
    if scheme.abilities.input_quantiles != INPUT_QUANTILES:
        limits = partial(quantile_domain, input_quantiles=input_quantiles_of(scheme))
        return replace(NESTED_KFOLD, domain=limits)
    return OF_SCHEMES.get(scheme.name, NESTED_KFOLD)
