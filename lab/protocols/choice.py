"""Which paper's protocol a scheme is measured by."""

from __future__ import annotations

from glassfleet.scheme import Scheme
from lab.protocols import fedga, frbc, tsk
from lab.protocols.paper import NESTED_KFOLD, PaperProtocol

OF_SCHEMES = {"dp_tree": fedga.PROTOCOL, "fedga": fedga.PROTOCOL, "frbc": frbc.PROTOCOL, "tsk": tsk.PROTOCOL}


def protocol_of(scheme: Scheme, *, labels: bool = False) -> PaperProtocol:
    """Return the protocol of the scheme's paper; of other schemes, that of its purpose.

    Parameters
    ----------
    scheme : Scheme
    labels : bool
        Whether the target is a class label; of interest for schemes with both purposes.
    """
    general = NESTED_KFOLD if "regression" in scheme.purpose and not labels else frbc.PROTOCOL
    return OF_SCHEMES.get(scheme.name, general)
