"""Commands with many options, which their help lists in sections; and the sections of a service's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from schemas.settings import Settings, settings_of
from schemas.text import attributes

OTHERS = "Other options"


class Sectioned(click.Command):
    """A command whose help lists its options in sections.

    Parameters
    ----------
    sections : mapping
        Heading -> names of its options, in the order of the help. The others come last.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        records = {each.name: record for each in self.get_params(ctx) if (record := each.get_help_record(ctx))}
        for heading, names in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(name) for name in names])
        with formatter.section(OTHERS):
            formatter.write_dl(list(records.values()))


class SectionedGroup(click.Group, Sectioned):
    """A group whose help lists its options in sections, and then its commands."""


def sections_of(config: type[Settings]) -> dict[str, list[str]]:
    """Return the sections of a service's settings: those that matter first, then each group under its description."""
    sections = {"Most used options": list(config.first)}
    texts = attributes(config)
    for key, setting in settings_of(config).items():
        if setting.group and key not in config.first:
            sections.setdefault(texts[setting.group].rstrip("."), []).append(key)
    return sections
