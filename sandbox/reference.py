"""The reference of every key, made from the tables: `python -m sandbox.reference README.md`.

It stands in the README between two marks, and a test holds it equal to what is made here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from sandbox import confinement, handed, route, spec
from sandbox.built import NOT_BUILT
from sandbox.table import Key, dump_table, keys_of

BEGIN = "<!-- keys: made by python -m sandbox.reference README.md -->"
END = "<!-- keys: end -->"

Section = tuple[str, type[Any]]

SPEC_TABLES = {
    name: type(one.default) for name, one in keys_of(spec.Spec).items() if name != "secrets"
}
SECTIONS: tuple[tuple[str, str, tuple[Section, ...]], ...] = (
    (
        "A spec",
        "A TOML file; every key is optional. A path that isn't absolute starts at the spec's own "
        "folder, or with `~/` at your home.",
        (
            *((f"[{name}]", made) for name, made in SPEC_TABLES.items()),
            ("[secrets.<name>]", spec.SpecSecret),
            ("a provider of [models]", spec.Provider),
        ),
    ),
    (
        "A wrap request",
        "A JSON object on the standard input of `lnk sandbox wrap`. A `net` is one mode: the word "
        '`"closed"`, or an object whose one key is the mode.',
        (
            ("the request", confinement.WrapRequest),
            ("confinement", confinement.Confinement),
            ("net.loopback", confinement.Loopback),
            ("net.proxied", confinement.Proxied),
            ("net.reaching", confinement.Reaching),
            ("net.reaching.reached[]", confinement.Reached),
            ("net.host", confinement.Host),
            ("proxy", confinement.Proxy),
            ("unwalled", confinement.Unwalled),
        ),
    ),
    (
        "Routes",
        "Each is an object with its `kind`; `open` has no other key.",
        (
            *((f"kind = {kind}", made) for kind, made in route.ROUTES.items() if keys_of(made)),
            ("a secret's rule", route.Rule),
            ("a rule's header", route.Header),
        ),
    ),
    (
        "Handed to a running command",
        "JSON on a descriptor or a socket, never in a file.",
        (
            ("--with-fd", handed.RunWith),
            ("a secret of --with-fd", handed.RunSecret),
            ("its secret", handed.GivenSecret),
            ("--routes-handed", handed.HandedRoutes),
            ("a blank proxy's binding", handed.ProxyBind),
        ),
    ),
)


def reference() -> str:
    """Return the reference as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "Keys marked * aren't built yet in this version: asking for one is refused by its name."
    for title, about, sections in SECTIONS:
        yield f"\n### {title}\n"
        yield about
        for name, made in sections:
            yield f"\n`{name}`: {_first_line(made)}\n"
            yield "| key | takes | missing | does |"
            yield "| --- | --- | --- | --- |"
            for one in keys_of(made).values():
                yield _row(made, one)


def _first_line(made: type[Any]) -> str:
    return (made.__doc__ or "").partition("\n")[0]


def _row(made: type[Any], one: Key) -> str:
    key = f"`{one.name}`"
    if f"{made.__name__}.{one.name}" in NOT_BUILT:
        key += " *"
    cells = (key, one.kind.words, _missing(one), one.effect)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _missing(one: Key) -> str:
    """Say what a missing key means."""
    if one.required:
        return "required"
    match one.default:
        case None:
            return "none"
        case bool():
            return "true" if one.default else "false"
        case () | {}:
            return "none"
        case str():
            return f'`"{one.default}"`'
    return f"`{dump_table(one.default)}`"


def placed(readme: str) -> str:
    """Return a README with the reference between its marks; raises ValueError without them."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the README has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{reference()}{END}{after}"


def main(words: list[str]) -> int:
    """Print the reference, or put it into the file that is named."""
    if not words:
        sys.stdout.write(reference())
        return 0
    with open(words[0], encoding="utf-8") as source:
        readme = source.read()
    with open(words[0], "w", encoding="utf-8") as target:
        target.write(placed(readme))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
