"""The fuzz targets of calls to hosted models, over their corpora and their strategies."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from fuzz import strategies_models, target_model_body, target_model_path, target_strict_json
from fuzz.case_files import load

CORPUS = Path(__file__).parent.parent.parent / "fuzz" / "corpus"
FILES = Path(__file__).parent.parent / "cases"
CASES = [
    case for name in ("hosted_model", "more_hosted_model") for case in load(FILES / f"{name}.jsonl")
]
TARGETS = {
    "model_body": target_model_body.one_input,
    "model_path": target_model_path.one_input,
    "strict_json": target_strict_json.one_input,
}


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_holds(name: str) -> None:
    paths = sorted((CORPUS / name).iterdir())
    assert paths
    for path in paths:
        TARGETS[name](path.read_bytes())


@given(strategies_models.bodies())
def test_a_body_that_goes_on_asks_the_provider_for_nothing(data: bytes) -> None:
    target_model_body.one_input(data)


@given(strategies_models.changed_bodies(CASES))
def test_nor_does_one_made_of_the_parts_of_others(data: bytes) -> None:
    target_model_body.one_input(data)


@given(strategies_models.heads())
def test_a_head_that_goes_on_is_a_known_call_however_it_is_read(data: bytes) -> None:
    target_model_path.one_input(data)


def test_the_targets_can_fail() -> None:
    with pytest.raises(AssertionError):
        list(target_model_body.tools_in({"x": [{"mcp_servers": []}]}))
    tools = dict(target_model_body.tools_in({"input": [{"tools": [{"type": "mcp"}]}]}))
    assert tools == {".input.tools": {"type": "mcp"}}
    image = {"type": "image", "source": {"type": "url", "url": "https://evil.test"}}
    found = target_model_body.addresses_in({"messages": [{"content": [image]}]}, "")
    assert list(found) == [(".messages.content.source.url", "https://evil.test")]
