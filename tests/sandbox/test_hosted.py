"""Hosted models as a program meets them: `sandbox/hosted.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from proto.verbs.providers import PROVIDERS
from sandbox import hosted, spec_routes
from sandbox.errors import SpecError
from sandbox.hosted import SDKS
from sandbox.mounts import mount_of, variables_of
from sandbox.place import Place
from sandbox.route import Model, read_route
from sandbox.spec import Files, Spec
from sandbox.spec_routes import routes_of
from sandbox.table import replaced

BASE = "http://127.0.0.1:40781"


def test_each_provider_has_its_host_and_variables_of_its_own() -> None:
    assert {name: sdk.host for name, sdk in SDKS.items()} == {
        name: provider.host for name, provider in PROVIDERS.items()
    }
    # What these providers' own documents and SDKs say: no client of theirs is in the tests.
    others = {name: SDKS[name] for name in ("openrouter", "xai", "deepseek", "groq")}
    assert {name: (sdk.host, sdk.keys, tuple(sdk.addresses)) for name, sdk in others.items()} == {
        "openrouter": ("openrouter.ai", ("OPENROUTER_API_KEY",), ("OPENROUTER_BASE_URL",)),
        "xai": ("api.x.ai", ("XAI_API_KEY",), ("XAI_BASE_URL",)),
        "deepseek": ("api.deepseek.com", ("DEEPSEEK_API_KEY",), ("DEEPSEEK_BASE_URL",)),
        "groq": ("api.groq.com", ("GROQ_API_KEY",), ("GROQ_BASE_URL",)),
    }
    named = [name for sdk in SDKS.values() for name in (*sdk.keys, *sdk.addresses)]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("name", SDKS)
def test_an_sdks_address_leads_to_calls_that_are_let_through(name: str) -> None:
    """What the SDKs put behind the address they are given makes a path of the provider's."""
    behind = {
        "anthropic": "/v1/messages",
        "google": "/v1beta/models/x:generateContent",
        "mistral": "/v1/chat/completions",
        "groq": "/openai/v1/chat/completions",
    }.get(name, "/chat/completions")
    (path,) = SDKS[name].addresses.values()
    found = [each for each in PROVIDERS[name].endpoints if each.path.fullmatch(path + behind)]
    assert [each.method for each in found] == ["POST"]


def test_a_program_gets_a_placeholder_and_the_routes_address_and_no_key() -> None:
    route = Model(
        provider="openai", secret_key="sk-real", placeholder="held" * 4, server_tools=False
    )
    assert variables_of([route], BASE, "secret") == {
        "OPENAI_API_KEY": "held" * 4,
        "OPENAI_BASE_URL": f"{BASE}/_link/model/openai/v1",
    }
    assert mount_of(route) == {"kind": "model", "provider": "openai", "host": "api.openai.com"}
    assert dict(hosted.variables_of("mistral", "u", "p")) == {
        "MISTRAL_API_KEY": "p",
        "MISTRAL_BASE_URL": "u",
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": "two words"}, "key: holds a space"),
        ({"placeholder": "sk-real-key"}, "placeholder: is the key itself"),
        ({"placeholder": "short"}, "placeholder"),
        ({"key": ""}, "key"),
        ({"provider": "another"}, "provider"),
    ],
)
def test_a_route_that_could_not_work_is_refused_when_it_is_made(
    change: dict[str, str], said: str
) -> None:
    told = {"kind": "model", "provider": "openai", "key": "sk-real-key", "placeholder": "held" * 4}
    assert read_route(told, Place(("routes",)))
    with pytest.raises(SpecError, match=said):
        read_route({**told, **change}, Place(("routes",)))


def test_a_key_of_two_words_in_a_spec_is_refused_by_its_place() -> None:
    spec = Spec.parse(b'[models]\nopenai = { key = "env:K" }\n', folder="/srv", home="/home/u")
    assert [route.kind for route in routes_of(spec, {"K": "one-word"})] == ["model"]
    with pytest.raises(SpecError, match=r"models\.openai\.key: holds a space"):
        routes_of(spec, {"K": "two words"})


def test_an_empty_key_is_refused_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("\n")
    spec = Spec.parse(f"models.xai.key = 'file:{file}'".encode(), folder="/srv", home="/home/u")
    with pytest.raises(SpecError, match=r'^models\.xai\.key: names ".*", which is empty; write'):
        routes_of(spec, {})
    spec = Spec.parse(b"models.xai.key = 'env:K'", folder="/srv", home="/home/u")
    with pytest.raises(SpecError, match=r"names the variable K, which is empty; set it"):
        routes_of(spec, {"K": ""})
    with pytest.raises(SpecError, match=r"names the variable K, which isn't set; set it"):
        routes_of(spec, {})


def test_a_keys_file_that_the_program_could_read_is_refused_by_whatever_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/xai").write_text("secret")
    (tmp_path / "link").symlink_to("keys")
    monkeypatch.setenv("HOME", str(tmp_path))
    text = "models.xai.key = 'file:link/xai'\n"
    spec = Spec.parse(text.encode(), folder=str(tmp_path), home=str(tmp_path))
    assert [route.kind for route in routes_of(spec, {})] == ["model"]
    for files in (
        Files(read=(f"{tmp_path}/keys",)),
        Files(read=(f"{tmp_path}/keys/xai",)),
        Files(write=(str(tmp_path),)),
        Files(write=(f"{tmp_path}/link",)),
        Files(read_home=True),
    ):
        with pytest.raises(
            SpecError, match=r"^models\.xai\.key: leads to a file in .*; keep it els"
        ):
            routes_of(replaced(spec, files=files), {})
    assert routes_of(replaced(spec, files=Files(read=(f"{tmp_path}/key",))), {})
    monkeypatch.setattr(spec_routes, "SYSTEM", (str(tmp_path),))
    with pytest.raises(SpecError, match="which the sandbox reads"):
        routes_of(spec, {})


def test_a_route_asked_for_twice_is_refused_by_the_specs_key() -> None:
    spec = Spec.parse(b"[models]\nlocal = [11434, 8080, 11434]", folder="/srv", home="/home/u")
    with pytest.raises(SpecError, match=r"^models\.local\[2\]: .* is models\.local\[0\]'s already"):
        routes_of(spec, {})
