"""Keys, cards and rosters: what is wrong with a file is said in one sentence; no secret goes where a card belongs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unspoken.engines.network import cards
from unspoken.engines.network.cards import CardError, find_identity, make_keys, read_card, read_identity
from unspoken.engines.network.participant import Told
from unspoken.sites import joining

STUDY: Any = SimpleNamespace(source="study.toml", roster=None)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path))
    return tmp_path


def made(folder: Path, name: str) -> cards.Card:
    return make_keys(name, folder / f"{name}.secret", folder / f"{name}.card")


@pytest.mark.parametrize("name", ["", "a" * 61, 'the "hub"', "a/b", "a\\b", " hub", "St Mary.", "a\nb"])
def test_a_name_that_is_no_name_is_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(CardError, match=r"no quotes or slashes, and no dots at its ends\.$"):
        make_keys(name, tmp_path / "secret", tmp_path / "card")
    assert not list(tmp_path.iterdir())


def test_a_key_is_never_written_over(tmp_path: Path) -> None:
    made(tmp_path, "hub")
    before = (tmp_path / "hub.secret").read_bytes()
    with pytest.raises(CardError, match="exists already; a lost key cannot be made again"):
        made(tmp_path, "hub")
    assert (tmp_path / "hub.secret").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('secret = "00"', "is a secret key, not a card; never send it"),
        ('name = "hub"', "is no card"),
        ('name = "hub"\nkey = "00"\ncertificate = "00"', "is damaged"),
        ("no card", "is neither a card nor a key of unspoken"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_card_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "hub.card"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(CardError, match=rf"hub\.card: {said}"):
        read_card(file)


def test_a_secret_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    made(tmp_path, "hub")
    (tmp_path / "hub.secret").chmod(0o640)
    with pytest.raises(CardError, match=r"can be read by others; make it yours alone \(chmod 600 "):
        read_identity(tmp_path / "hub.secret")
    with pytest.raises(CardError, match="is no key of unspoken"):
        read_identity(tmp_path / "hub.card")


def test_the_key_that_the_roster_has_is_found(home: Path) -> None:
    one, two, other = (made(home, name) for name in ("one", "two", "other"))
    assert find_identity(STUDY, {one.key}, None)[0] == home / "one.secret"
    assert find_identity(STUDY, {one.key, two.key}, home / "two.secret")[1].public.hex() == two.key
    with pytest.raises(CardError, match=r"several keys are in the roster for this role \(one\.secret, two\.secret\)"):
        find_identity(STUDY, {one.key, two.key}, None)
    with pytest.raises(CardError, match=r"has no key that study\.toml's roster has for this role"):
        find_identity(STUDY, {"00"}, None)
    with pytest.raises(CardError, match=r"other\.secret: has a key that is not in study\.toml's roster"):
        find_identity(STUDY, {one.key}, home / "other.secret")
    assert other.key not in {one.key, two.key}


def test_a_key_of_another_role_is_told_as_such(home: Path) -> None:
    """Whoever has a key in the roster needs no new one: the command is the wrong one, or the site's file."""
    party, helper, hub = (made(home, name).key for name in ("party", "helper", "hub"))
    roster = SimpleNamespace(parties=[party], helpers=[helper], coordinator=hub)
    agreed: Any = SimpleNamespace(source="study.toml", roster=roster)
    for known, file, role in (({helper}, "party", "a party"), ({party}, "helper", "a helper"), ({party}, "hub", "the")):
        with pytest.raises(CardError, match=rf"{file}\.secret: is the key of {role} .*a site file of a party names"):
            find_identity(agreed, known, home / f"{file}.secret")
    (home / "helper.secret").unlink()
    (home / "hub.secret").unlink()
    with pytest.raises(CardError, match=r"party\.secret: is the key of a party in study\.toml's roster, not"):
        find_identity(agreed, {helper}, None)


def test_a_roster_has_everyone_once_and_a_study_has_one_roster(tmp_path: Path) -> None:
    hub, party = (made(tmp_path, name) for name in ("hub", "party"))
    text = cards.roster_text([party], hub, [])
    with pytest.raises(CardError, match="two cards have the name party"):
        cards.roster_text([party, party], hub, [])
    with pytest.raises(CardError, match="two cards have the key"):
        cards.roster_text([party], hub._replace(key=party.key), [])
    with pytest.raises(CardError, match=r"has a \[roster\] already"):
        cards.with_roster(cards.with_roster("[study]\n", text), text)


def test_whom_a_caller_has_told_stays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parties of one process may be told by one object, and each signs for itself."""
    given, seen = Told(), list[Told]()

    def client(*facts: Any, told: Told, **named: Any) -> Any:
        seen.append(told)
        raise InterruptedError

    monkeypatch.setattr(joining, "Client", client)
    who: Any = SimpleNamespace(agrees=lambda ending: b"mine", role=None, identity=None, roster=None)
    who.plan, who.differs = SimpleNamespace(study=SimpleNamespace(digest=lambda: "00")), lambda plan: None
    where: Any = None
    with pytest.raises(InterruptedError):
        joining._take_part(who, where, given, 1.0)
    assert seen[0].agrees is who.agrees
    assert given.agrees is not who.agrees
