"""Models in other words: the same numbers, the terms and units of another domain."""

from __future__ import annotations

from glassfleet.contract import catalogue
from glassfleet.data.domain import Domain, Variable
from glassfleet.model.forecasts import TellsForecasts
from glassfleet.model.protocol import Model
from schemas.errors import UsageError


def in_words_of(model: Model, domain: Domain) -> Model:
    """Return the model that speaks in the terms and units of `domain` and predicts the same.

    Parameters
    ----------
    model : Model
    domain : Domain
        As the model's own but for ``terms`` and ``unit`` of its variables.

    Raises
    ------
    UsageError
        The domain has other variables, limits, categories or classes.
    """
    if domain == model.domain:
        return model
    if _numbers(domain) != _numbers(model.domain):
        raise UsageError(
            "the domain to speak in has other variables, limits or classes than the model's own; only terms and units "
            "may differ. Start from the model's: glassfleet model show NAME --json, document.domain"
        )
    document = {**model.to_document(), "domain": domain.to_document()}
    reworded = catalogue.load(model.scheme).from_document(document)
    if isinstance(model, TellsForecasts) and isinstance(reworded, TellsForecasts):
        reworded.forecasts, reworded.why_few = model.forecasts, model.why_few
    return reworded


def in_terms_of(model: Model, domain: Domain) -> Model:
    """Return the model that names its sets as another model's domain does, so that the rules of the two compare.

    Parameters
    ----------
    model : Model
    domain : Domain
        Of another model. Of an input of the same name the terms are taken, unless both name their sets and not as
        many, and the unit where the limits are equal; all else may differ.
    """

    def spelled(was: Variable, now: Variable | None) -> Variable:
        if now is None or (was.terms and now.terms and len(was.terms) != len(now.terms)):
            return was
        unit = now.unit if (was.low, was.high) == (now.low, now.high) else was.unit
        return was.model_copy(update={"terms": now.terms, "unit": unit})

    own, named = model.domain, {variable.name: variable for variable in domain.features}
    target = own.target
    if target is not None and domain.target is not None and target.name == domain.target.name:
        target = spelled(target, domain.target)
    features = tuple(spelled(variable, named.get(variable.name)) for variable in own.features)
    return in_words_of(model, own.model_copy(update={"features": features, "target": target}))


def _numbers(domain: Domain) -> Domain:
    """Return the domain without its words."""
    return domain.reworded(lambda variable: variable.model_copy(update={"unit": "", "terms": ()}))
