"""Units: those of the Vehicle Signal Specification, by all the names that loggers and databases give them.

A table of factors is enough for them. A library for units would take 1 MB, read ``C`` as coulomb, and not know
``min-1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from glassfleet.data.domain import Domain
from schemas.errors import DataError

SAME: Final = 1.0, 0.0
"""The conversion that changes nothing."""

_KEPT: Final = 1024
"""Texts come from sources, and of a bus with every number: so many are remembered."""


@dataclass(frozen=True)
class Unit:
    """A unit: `kind` is what it measures; a number of it times `factor` plus `offset` is one of the kind's first unit.

    The `symbol` is that of VSS.
    """

    symbol: str
    kind: str
    factor: Fraction
    offset: Fraction = Fraction(0)


_MILE, _POUND, _GALLON = "1609344/1000", "45359237/100000", "3785411784/1000000000"
_TABLE: Final = f"""
length: m 1 metre meter|mm 1/1000|cm 1/100|km 1000|inch 254/10000 in|mile {_MILE} mi miles|ft 3048/10000 feet
speed: m/s 1 mps|km/h 1000/3600 kmh kph kmph|cm/s 1/100|mph {_MILE}/3600 mi/h miles/h|kn 1852/3600 knot knots kt kts
acceleration: m/s^2 1 m/s2 m/s²|cm/s^2 1/100 cm/s2|g0 980665/100000 gn
angle: rad 1|degrees 0.017453292519943295 deg ° degree
turning: rad/s 1|degrees/s 0.017453292519943295 deg/s °/s degree/s|rpm 0.10471975511965977 1/min min-1 u/min r/min
volume: l 1 litre liter L|ml 1/1000|cm^3 1/1000 cm3 ccm cc|gal {_GALLON} gallon
flow: l/h 1|l/s 3600|ml/s 36/10|gal/h {_GALLON} gph
mass: kg 1|g 1/1000 gram|lbs {_POUND} lb|t 1000 tonne
mass flow: g/s 1|kg/h 1000/3600|kg/s 1000
temperature: K 1 kelvin degk °k|Celsius 1+27315/100 °c degc c deg_c centigrade|Fahrenheit 5/9+45967/180 °f degf f deg_f
pressure: Pa 1|hPa 100 mbar|kPa 1000|bar 100000|psi 6894757293168/1000000000|MPa 1000000
power: W 1 watt|kW 1000|PS 73549875/100000 hp_metric|hp 74569987158227/100000000000
energy: J 1|Wh 3600|kWh 3600000
force: N 1|kN 1000
torque: Nm 1 n*m n.m newtonmeter|lbft 13558179483314/10000000000000 lb-ft ft-lb
voltage: V 1 volt|mV 1/1000|kV 1000
current: A 1 ampere amp|mA 1/1000
charge: Ah 1|mAh 1/1000
resistance: ohm 1 Ω|kohm 1000 kΩ
time: s 1 sec second seconds|ms 1/1000|us 1/1000000 µs|ns 1/1000000000|min 60 minute minutes|h 3600 hr hour hours\
|day 86400 d days|weeks 604800|months 2629746|years 31556952
frequency: Hz 1|kHz 1000|MHz 1000000|cpm 1/60|bpm 1/60
share: percent 1 % pct|ratio 100|permille 1/10 ‰
consumption: l/100km 1|ml/100km 1/1000
energy use: kWh/100km 1|Wh/km 1/10
range: km/l 1|mpg {_MILE}/1000/({_GALLON})
emission: g/km 1|mg/km 1/1000
rain: mm/h 1
light: lx 1 lux
level: dB 1|dBm 1
text: iso8601 1|unix-time 1
"""


def _number(text: str) -> Fraction:
    if "(" in text:
        before, _, inner = text.partition("/(")
        return _number(before) / _number(inner.rstrip(")"))
    first, *divisors = text.split("/")
    value = Fraction(first)
    for divisor in divisors:
        value /= Fraction(divisor)
    return value


def _units() -> dict[str, Unit]:
    named: dict[str, Unit] = {}
    for line in _TABLE.strip().replace("\\\n", "").splitlines():
        kind, _, units = line.partition(": ")
        for text in units.split("|"):
            symbol, scale, *others = text.split()
            factor, _, offset = scale.partition("+")
            unit = Unit(symbol, kind, _number(factor), _number(offset or "0"))
            for name in (symbol, *others):
                named.setdefault(_spelled(name), unit)
                named[name] = unit
    return named


def _spelled(name: str) -> str:
    return "".join(name.lower().split()).replace("²", "2").replace("^", "")


_BY_NAME: Final = _units()


@lru_cache(maxsize=_KEPT)
def find(name: str) -> Unit | None:
    """Return a unit by its name, ``[km/h]`` and ``KMH`` too; None: nobody knows it.

    Capitals count where they tell two units apart.
    """
    name = name.strip().strip("[]()").strip()
    return _BY_NAME.get(name) or _BY_NAME.get(_spelled(name))


@lru_cache(maxsize=_KEPT)
def conversion(given: str, wanted: str) -> tuple[float, float]:
    """Return the factor and the offset that turn numbers of one unit into those of another.

    Raises
    ------
    DataError
        One is unknown, or they do not measure the same.
    """
    source, target = find(given), find(wanted)
    if given == wanted or (source is not None and source == target):
        return SAME
    if source is None or target is None:
        raise DataError(f"unit {given if source is None else wanted!r} is not known", "Name another one in the plan")
    if source.kind != target.kind:
        raise DataError(f"{given} is a unit of {source.kind}, and {wanted} one of {target.kind}")
    return float(source.factor / target.factor), float((source.offset - target.offset) / target.factor)


def planned(given: str, plan: str, name: str) -> tuple[float, float]:
    """Return what turns a column's numbers, in the unit that its source tells, into those of the plan's unit.

    A unit that nobody knows is taken for the plan's: it may be another spelling.

    Raises
    ------
    DataError
        They do not measure the same.
    """
    if find(given) is None or find(plan) is None:
        return SAME
    try:
        return conversion(given, plan)
    except DataError as fault:
        mend = "Correct the unit in the plan, or where the source has it from"
        raise DataError(f"{name!r} is in {given} here, and the plan says {plan}: {fault.what}", mend) from fault


def unlike(domain: Domain, units: Mapping[str, str]) -> str:
    """Return which column of a model is in another unit here, and the way out; empty: none, as far as it is known."""
    for variable in (*domain.features, *([domain.target] if domain.target is not None else [])):
        here, there = find(units.get(variable.name, "")), find(variable.unit)
        if here is not None and there is not None and here != there:
            what = f"{variable.name!r} is in {units[variable.name]} here, and the model has it in {variable.unit}"
            return f"{what}: rows that the fleet's plan makes are in its units"
    return ""
