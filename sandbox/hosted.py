"""Hosted models as a program meets them: its providers' hosts, and the variables of their SDKs.

What a call may be, and where its key goes, the bridge alone knows (`proto.verbs.providers`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Sdk:
    """One provider, as its SDKs read it from the environment.

    host: its own.  keys: where they look for the key.  addresses: where they look for the
    address, each with what of the provider's paths belongs to it.
    """

    __slots__ = ("addresses", "host", "keys")

    def __init__(self, host: str, keys: tuple[str, ...], addresses: dict[str, str]) -> None:
        self.host = host
        self.keys = keys
        self.addresses = addresses


SDKS = {
    "anthropic": Sdk("api.anthropic.com", ("ANTHROPIC_API_KEY",), {"ANTHROPIC_BASE_URL": ""}),
    "openai": Sdk("api.openai.com", ("OPENAI_API_KEY",), {"OPENAI_BASE_URL": "/v1"}),
    "google": Sdk(
        "generativelanguage.googleapis.com",
        ("GEMINI_API_KEY",),
        {"GOOGLE_GEMINI_BASE_URL": ""},
    ),
    "mistral": Sdk("api.mistral.ai", ("MISTRAL_API_KEY",), {"MISTRAL_BASE_URL": ""}),
    "openrouter": Sdk("openrouter.ai", ("OPENROUTER_API_KEY",), {"OPENROUTER_BASE_URL": "/api/v1"}),
    "xai": Sdk("api.x.ai", ("XAI_API_KEY",), {"XAI_BASE_URL": "/v1"}),
    "deepseek": Sdk("api.deepseek.com", ("DEEPSEEK_API_KEY",), {"DEEPSEEK_BASE_URL": ""}),
    "groq": Sdk("api.groq.com", ("GROQ_API_KEY",), {"GROQ_BASE_URL": ""}),
}
"""Mistral's SDK reads no address from the environment: its program hands the variable on.
Google's reads `GOOGLE_API_KEY` too, and warns at each call where both are set."""


def variables_of(provider: str, url: str, placeholder: str) -> Iterator[tuple[str, str]]:
    """Yield what a program's environment gets to reach a provider at the route's address."""
    sdk = SDKS[provider]
    for name in sdk.keys:
        yield name, placeholder
    for name, path in sdk.addresses.items():
        yield name, url + path
