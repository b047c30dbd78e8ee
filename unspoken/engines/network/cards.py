"""Identities of people and sites: a key file that stays secret, and a card to give to others.

`make_keys` writes both. A card has a name, the public key, and the digest of the certificate that a coordinator of this
identity shows. A study's roster is made of cards.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from unspoken import writing
from unspoken.engines.network.tls import certificate_digest
from unspoken.errors import UnspokenError
from unspoken.study import Study
from unspoken.study.sections import PLAIN, is_plain
from unspoken.summation.keys import Identity, agreement_key

_DIGITS = 64
_BY = "by --keys (over Flower: by the setting `keys`)"


class CardError(UnspokenError):
    """A key file or a card cannot be used."""


class Card(NamedTuple):
    """What others need to know of an identity."""

    name: str
    key: str
    certificate: str

    def text(self) -> str:
        return (
            "# A card of unspoken: public. Give it to whoever makes the roster of a study.\n"
            f'name = "{self.name}"\nkey = "{self.key}"\ncertificate = "{self.certificate}"\n'
        )


def home() -> Path:
    """The folder for keys and states of this user: $UNSPOKEN_HOME, or .unspoken in the home folder."""
    given = os.environ.get("UNSPOKEN_HOME")
    return Path(given) if given else Path.home() / ".unspoken"


def card_of(name: str, identity: Identity) -> Card:
    return Card(name, identity.public.hex(), certificate_digest(identity))


def make_keys(name: str, key_file: Path, card_file: Path) -> Card:
    """Make an identity, and write its key file and its card. Neither may exist."""
    check_name(name)
    for file in (key_file, card_file):
        if file.exists():
            raise CardError(f"{file}: exists already; a lost key cannot be made again. Choose another name or folder.")
    identity = Identity(os.urandom(32))
    card = card_of(name, identity)
    secret = (
        "# A key of unspoken: SECRET. Whoever has this file can act as you. Never send it.\n"
        f'name = "{name}"\nsecret = "{identity.secret.hex()}"\n'
    )
    writing.check_folder(key_file.parent, "--folder")
    with writing.staged(key_file.parent, make=True, option="--folder") as hidden:
        mine, theirs = hidden / "secret", hidden / "card"
        with os.fdopen(os.open(mine, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as opened:
            opened.write(secret)
        theirs.write_text(card.text(), encoding="utf-8")
        if not writing.keep({mine: key_file, theirs: card_file}):
            raise CardError(f"{key_file}: exists already; choose another name or folder.")
    return card


def check_name(name: str) -> None:
    """Refuse a name that could not stand in a file, in a roster or on a screen."""
    if not is_plain(name) or not name.isprintable() or set(name) & set('"\\/') or name.strip(".") != name:
        raise CardError(
            f"the name is {name!r}, but should have {PLAIN}; also no quotes or slashes, and no dots at its ends."
        )


def read_card(file: Path) -> Card:
    """Read a card; `CardError` in one sentence if the file is not one."""
    content = _read(file)
    if "secret" in content:
        _refuse(file, "is a secret key, not a card; never send it, and name the .card file instead")
    name, key, certificate = (content.get(part) for part in Card._fields)
    if not isinstance(name, str) or not isinstance(key, str) or not isinstance(certificate, str):
        _refuse(file, "is no card (it should have name, key and certificate); `unspoken keys NAME` writes one")
    try:
        check_name(name)
        agreement_key(bytes.fromhex(key))
        if len(key) != _DIGITS or len(bytes.fromhex(certificate)) * 2 != _DIGITS:
            raise ValueError
    except (ValueError, CardError):
        _refuse(file, "is damaged: name, key or certificate is not what `unspoken keys` writes; ask its owner again")
    return Card(name, key, certificate)


def read_identity(file: Path) -> tuple[str, Identity]:
    """The name and the identity of a key file."""
    content = _read(file)
    name, secret = content.get("name"), content.get("secret")
    try:
        identity = Identity(bytes.fromhex(secret)) if isinstance(secret, str) and len(secret) == _DIGITS else None
    except ValueError:
        identity = None
    if identity is None or not isinstance(name, str):
        _refuse(file, "is no key of unspoken; `unspoken keys NAME` makes one")
    if os.name == "posix" and file.stat().st_mode & 0o077:
        _refuse(file, f"can be read by others; make it yours alone (chmod 600 {file})")
    return name, identity


def find_identity(study: Study, keys: set[str], given: Path | None) -> tuple[Path, Identity]:
    """The key file to use: the given one, or the one among this user's keys that the study's roster has.

    `keys` are the public keys that it may have.
    """
    if given is not None:
        _, identity = read_identity(given)
        if identity.public.hex() not in keys:
            _refuse_other_role(study, [(given, identity)])
            _refuse(given, f"has a key that is not in {study.source}'s roster for this role; name another")
        return given, identity
    mine = [(file, read_identity(file)[1]) for file in sorted(home().glob("*.secret"))]
    found = [(file, identity) for file, identity in mine if identity.public.hex() in keys]
    if not found:
        _refuse_other_role(study, mine)
        raise CardError(
            f"{home()}: has no key that {study.source}'s roster has for this role; make one (`unspoken keys NAME`) and "
            f"have its card put into the roster, or name the file {_BY}."
        )
    if len(found) > 1:
        listed = ", ".join(file.name for file, _ in found)
        raise CardError(f"{home()}: several keys are in the roster for this role ({listed}); name one {_BY}.")
    return found[0]


def _refuse_other_role(study: Study, mine: list[tuple[Path, Identity]]) -> None:
    """Refuse if one of these keys, none of which has the role that is taken, has another one in the roster."""
    if (roster := study.roster) is None:
        return
    roles = dict.fromkeys(roster.parties, "a party") | dict.fromkeys(roster.helpers, "a helper")
    roles[roster.coordinator] = "the coordinator"
    for file, identity in mine:
        if (role := roles.get(identity.public.hex())) is not None:
            _refuse(
                file,
                f"is the key of {role} in {study.source}'s roster, not one for this role; a party uses `unspoken "
                "join`, a helper `unspoken assist`, the coordinator `unspoken serve` (over Flower, a site file of a "
                "party names `data`, and a helper's does not)",
            )


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); name a file that `unspoken keys` wrote.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        _refuse(file, "is neither a card nor a key of unspoken; name a file that `unspoken keys` wrote")


def _refuse(file: Path, problem: str) -> NoReturn:
    raise CardError(f"{file}: {problem}.")


def roster_text(parties: list[Card], coordinator: Card, helpers: list[Card], *, pinned: bool = True) -> str:
    """The [roster] of a study, from the cards of all who take part.

    Unless the coordinator's certificate is `pinned`, it must be signed by a public authority.
    """
    everyone = [*parties, coordinator, *helpers]
    for part, what in ((0, "name"), (1, "key")):
        values = [card[part] for card in everyone]
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise CardError(f"two cards have the {what} {twice}; everyone needs one of their own.")
    lines = ["[roster]", f'coordinator = "{coordinator.key}"']
    lines += [f'certificate = "{coordinator.certificate}"'] if pinned else []
    for role, cards in (("parties", parties), ("helpers", helpers)):
        if cards:
            lines += [f"{role} = [", *(f'  "{card.key}",  # {card.name}' for card in cards), "]"]
    lines += ["", "[roster.names]", *(f'"{card.name}" = "{card.key}"' for card in everyone)]
    return "\n".join(lines) + "\n"


def with_roster(text: str, roster: str) -> str:
    """A study file's text with this [roster]; `CardError` if it has one already."""
    if any(line.strip().startswith(("[roster]", "[roster.")) for line in text.splitlines()):
        raise CardError("the study has a [roster] already; take it out of the file first. All need the new file then.")
    return text.rstrip("\n") + "\n\n" + roster
