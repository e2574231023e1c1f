"""The reference of every key is made from the tables, and the README has it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import reference
from sandbox.built import NOT_BUILT
from sandbox.confinement import Confinement, Proxy
from sandbox.reference import BEGIN, END, SECTIONS, placed
from sandbox.spec import Spec
from sandbox.table import keys_of
from tests.sandbox.malformed import ROOT, reached


def rows(section: str) -> dict[str, str]:
    """Return a table's rows by their key."""
    text = reference.reference().partition(f"\n`{section}`: ")[2].partition("\n\n`")[0]
    cells = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip("| *`"): " | ".join(row) for row in cells}


def test_every_key_that_can_be_given_is_in_the_reference():
    listed = {made for _, _, sections in SECTIONS for _, made in sections}
    assert {made for made, _, _ in reached() if keys_of(made)} <= listed
    assert {type(one.default) for one in keys_of(Spec).values()} - {dict} <= listed
    assert set(rows("confinement")) == set(keys_of(Confinement))
    assert set(rows("proxy")) == set(keys_of(Proxy))


def test_a_key_that_is_not_built_is_marked_and_no_other():
    for section, made in (("confinement", Confinement), ("proxy", Proxy)):
        for name, row in rows(section).items():
            assert (" * |" in row) == (f"{made.__name__}.{name}" in NOT_BUILT)


def test_a_row_says_what_a_missing_key_means():
    assert "| required |" in rows("confinement")["write"]
    assert "| false |" in rows("confinement")["read_home"]
    assert "| none |" in rows("confinement")["hide"]


def test_the_reference_is_put_between_its_marks():
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert placed(text) == f"before\n{BEGIN}\n{reference.reference()}{END}\nafter\n"
    assert placed(placed(text)) == placed(text)


def test_a_readme_without_the_marks_is_refused():
    with pytest.raises(ValueError, match="has no"):
        placed("before\n")


def test_the_command_prints_it_or_puts_it_into_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert reference.main([]) == 0
    assert capsys.readouterr().out == reference.reference()
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\n{END}\n")
    assert reference.main([str(readme)]) == 0
    assert readme.read_text() == f"{BEGIN}\n{reference.reference()}{END}\n"


def test_the_readme_has_the_reference_as_it_is_made():
    readme = (Path(ROOT) / "README.md").read_text()
    assert placed(readme) == readme, "run python -m sandbox.reference README.md"
