"""The bootstrap of an environment, generated pages, and pictures that are of the pages as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.bootstrap import run_quietly
from deploy.site.settings_page import SERVICES, render
from schemas.settings import settings_of
from tests.support.docs.pages import ROOT, pages
from tests.support.docs.pictures import FOLDER, MOST_BYTES, NOTE, SEEN, as_note, digests, from_note, stale

TALKS = "import sys; print('WARNING: old', file=sys.stderr); print('told'); sys.exit(int(sys.argv[1]))"


def test_bootstrap_says_nothing_when_a_command_only_warns(capfd: pytest.CaptureFixture[str]) -> None:
    run_quietly([sys.executable, "-c", TALKS, "0"])
    assert capfd.readouterr() == ("", "")


def test_bootstrap_shows_all_of_it_when_a_command_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run_quietly([sys.executable, "-c", TALKS, "3"])
    assert failed.value.returncode == 3
    shown = capfd.readouterr().err
    assert "WARNING: old" in shown
    assert "told" in shown


def test_page_of_settings_is_what_the_code_says() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    assert page == render(), "renew it: python -m deploy.site.settings_page > docs/reference/settings.md"
    assert [key for service in SERVICES for key in settings_of(service) if f"- `{key}`" not in page] == []


_SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]*images/[^)\s]+)\)")


def test_pictures_are_of_the_pages_as_they_are_now() -> None:
    noted = from_note(NOTE.read_text(encoding="utf-8")) if NOTE.exists() else {}

    changed = stale(noted, digests())

    assert not changed, f"run `make pictures` (two minutes): docs/images are older than {', '.join(changed)}"


@pytest.mark.parametrize("pattern", SEEN)
def test_every_kind_of_source_is_looked_at_when_digests_are_made(pattern: str) -> None:
    assert [path for path in digests() if Path(path).match(pattern)]


def test_stale_pictures_are_noticed_when_a_source_changes_comes_or_goes(tmp_path: Path) -> None:
    folder = tmp_path / "coordinator" / "http" / "dashboard"
    (folder / "__pycache__").mkdir(parents=True)
    for name in ("a.py", "b.py", "__pycache__/a.pyc"):
        (folder / name).write_text("x = 1\ny = 2\n")
    before = digests(tmp_path)
    assert set(before) == {"coordinator/http/dashboard/a.py", "coordinator/http/dashboard/b.py"}
    assert from_note(as_note(before).replace("\n", "\r\n")) == before
    (folder / "a.py").write_text("x = 1\r\ny = 2\r\n", newline="")
    assert stale(before, digests(tmp_path)) == [], "how lines end is no matter"
    (folder / "a.py").write_text("x = 1\ny = 3\n")
    (folder / "b.py").unlink()
    (folder / "c.py").write_text("")
    assert stale(before, digests(tmp_path)) == [f"coordinator/http/dashboard/{name}.py" for name in "abc"]


def test_every_picture_is_shown_in_a_page_with_words_for_those_who_do_not_see_it() -> None:
    shown: dict[str, set[str]] = {}
    for page in pages():
        for words, target in _SHOWN.findall(page.text):
            shown.setdefault((page.path.parent / target).resolve().name, set()).add(words)
    kept = {path.name for path in FOLDER.iterdir() if path.suffix in {".png", ".svg"}} - {"favicon.svg"}

    assert shown.keys() == kept
    assert [name for name, text in shown.items() if min(map(len, text)) < 20] == []


def test_pictures_stay_small_together() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES
