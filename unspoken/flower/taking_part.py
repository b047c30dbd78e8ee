"""A site's side: it answers a question as the party or the helper that the site's file names, without asking a person.

So a policy must allow the study, or the file must give consent. The decision is recorded in the same way as that of
`unspoken join`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from unspoken import sites, writing
from unspoken.cli.consent import ask, policy_for
from unspoken.cli.endings import spent_so_far
from unspoken.cli.ledger import ledger_for
from unspoken.cli.program import remark
from unspoken.data.digests import read_with_digest
from unspoken.data.records import Records
from unspoken.engines.flower.exchanges import AnsweringSide, Begins, Declines, Hello
from unspoken.engines.flower.session import KEPT_BACK, Session, leaving
from unspoken.engines.network.cards import find_identity, home
from unspoken.engines.network.frames import Ending, packed
from unspoken.engines.network.participant import agreeing
from unspoken.engines.network.sign_in import SignInRefused
from unspoken.engines.outcome import FLOWER
from unspoken.errors import UnspokenError
from unspoken.flower.site import Site, read_site
from unspoken.methods.parameters import Refused
from unspoken.privacy.ledger import Ledger
from unspoken.report import policy, results
from unspoken.report.remarks import on_records
from unspoken.study.policy import Policy
from unspoken.summation.base import Roster
from unspoken.summation.keys import Identity

KEY = "unspoken"
"""The key of a SuperNode's configuration that names the site's file"""
_DECLINES = "it takes no part; its own log says why"
"""The coordinator is not told the reason, which may mention the site's own files"""


def _say(line: str) -> None:
    print(f"unspoken: {line}", file=sys.stderr, flush=True)


class _TakingPart:
    """A site, while it answers one question."""

    def __init__(self, site: Site) -> None:
        site.settle()
        self.site, self.study = site, site.read_study()
        self.roster, self.key = Roster.of(self.study), site.path(site.keys)
        self.output = site.path(site.output) or home() / "results"
        self.data = site.path(site.data)
        self._read = ""
        """The SHA-256 of the records' file, once it was read"""
        self._account: Ledger | None = None
        """Their ledger, then"""

    @property
    def identity(self) -> Identity:
        known = self.roster.parties if self.data else self.roster.helpers
        return find_identity(self.study, {bytes(key).hex() for key in known}, self.key)[1]

    def read(self, data: Path) -> tuple[Records, Ledger]:
        """The records, and their ledger, which keeps what the policy says."""
        records, self._read = read_with_digest(data, self.study)
        file, name = self.site.path(self.site.ledger), self.site.dataset
        account = ledger_for(file, name, [data], otherwise=data.stem, digest=self._read)
        if self.rules is not None and (limit := policy.total_limit(self.rules)) is not None:
            account.cap(limit)
        self._account = account
        return records, account

    @cached_property
    def rules(self) -> Policy | None:
        """The site's policy, as it is now."""
        return policy_for(self.site.path(self.site.policy))

    def agree(self) -> None:
        """Have the site's policy answer whether to take part; `Refused` if it does not.

        An earlier session ends here: whoever was refused cannot go on with it.
        """
        if self.data is None:
            return
        self._session.unlink(missing_ok=True)
        records, account = self.read(self.data)
        ready = sites.prepare(self.study, records, key=self.key, ledger=account)
        remark(on_records(self.study, records))
        needed = (
            f"nobody can be asked here: let {home() / 'policy.toml'} decide, or write yes = true in {self.site.source}"
        )
        ask(ready.plan, ready.seat, account, rules=self.rules, yes=self.site.yes, as_json=True, unasked=needed)
        writing.check_folder(self.output, "output")

    def participant(self) -> AbstractContextManager[sites.Participant]:
        if self.data is None:
            return sites.helper_of(self.study, self.key)
        records, account = self.read(self.data)
        return sites.prepare(self.study, records, key=self.key, ledger=account).participant()

    @property
    def _session(self) -> Path:
        return home() / "states" / f"{self.study.digest()[:16]}-{self.identity.public.hex()[:16]}.session"

    def _digest(self, session: bytes) -> bytes:
        """A digest of a session, and of what consent rests on now: the study, the records that were read and their
        ledger, and who gave it. A helper gives none."""
        given = f"policy {self.rules.sha256}" if self.rules is not None else f"yes {self.site.yes}"
        named = [given, self.site.data, self._read, self.site.dataset, self.site.ledger] if self.data else []
        facts = [self.study.digest(), *named, hashlib.sha256(session).hexdigest()]
        return hashlib.sha256(json.dumps(facts).encode()).digest()

    def session(self) -> bytes:
        """The session after the last question; nothing if there is none, if its file is damaged, or if consent rested
        on something else then: the coordinator has to greet the site, which decides again."""
        kept = self._session.read_bytes() if self._session.exists() else b""
        digest, session = kept[: hashlib.sha256().digest_size], kept[hashlib.sha256().digest_size :]
        return session if digest == self._digest(session) else b""

    def keep(self, session: bytes) -> None:
        """Have the session on disk before the answer leaves.

        Flower's own state for apps would come too late: it is handed over when the process ends, after the answer, and
        the next question may be there before.
        """
        with writing.staged(self._session.parent) as hidden:
            (hidden / "session").write_bytes(self._digest(session) + session)
            writing.keep({hidden / "session": self._session}, replace=True)

    def finish(self, joined: sites.Joined) -> None:
        """Tell how the study has ended, and keep the result."""
        if joined.disagrees or joined.certificate is None:
            reason = (joined.disagrees or joined.reason).rstrip(".")
            # The coordinator's reason counts what may have left anybody; the site's own ledger knows what has left it.
            own = f" Here, {spent_so_far(self._account, joined.run)}." if self._account is not None else ""
            _say(f"the study ended without a result here: {reason}.{own}")
            return
        _say(f"the study is over. {joined.certificate['statement']}")
        for kind, file in self.write(joined).items():
            _say(f"{kind}: {file}")

    def write(self, joined: sites.Joined) -> dict[str, str]:
        """Have the result's files, which helpers do not get, and the signatures that are new in the certificate.

        A result that was signed is written at once: a run ends although a site did not get the last word in time, and
        nobody asks this site again.
        """
        if joined.file is None or joined.certificate is None:
            return {}
        found = results.find(joined.file, self.study.name, joined.certificate, self.output)
        if found is None:
            return joined.save(self.output)
        joined.save_signatures(Path(found["certificate"]))
        return found


def answer(content: bytes, named: object) -> bytes:
    """A site's answer to a question. `named` is the site's file.

    It never raises an error, because Flower would pass the error's text on to the coordinator. The site's own log says
    what is wrong, and the coordinator hears only that the site declines.
    """
    try:
        return _answer(content, named)
    except UnspokenError as error:
        _say(str(error))
    except Exception:
        traceback.print_exc()
    return packed(Declines(_DECLINES))


def _answer(content: bytes, named: object) -> bytes:
    if not isinstance(named, str):
        raise UnspokenError(f'--node-config does not name the site\'s file, as {KEY}="/path/of/site.toml" does.')
    here = _TakingPart(read_site(Path(named)))
    try:
        return _answered(here, content)
    except SignInRefused as refused:
        said = str(refused).rstrip(".")
        _say(f"{here.study.source} (digest {here.study.digest()[:16]}): this site takes no part: {said}.")
        return packed(Declines(said))


def _answered(here: _TakingPart, content: bytes) -> bytes:
    answering = AnsweringSide(here.study.digest(), here.identity, here.roster)
    asked = answering.read(content)
    if isinstance(asked, Hello):
        here.agree()
    try:
        with here.participant() as who:
            kept = b"" if isinstance(asked, Hello) else here.session()
            told = sites.Told(line=_say, agrees=lambda ending: _signature(who, ending), differs=who.differs)
            if isinstance(asked, Hello):
                agreeing(asked.plan, answering.theirs, told)
            session = Session(who.role, who.largest_ending, told, kept)
            answered = session.answer(asked)
            if session.finished is not None:
                here.finish(who.joined(session.finished, session.sent))
            elif session.signed is not None:
                here.write(who.joined(session.signed, session.sent))
            here.keep(b"" if isinstance(answered, Begins) else session.dump())
    except (*KEPT_BACK, writing.NotWritten) as error:
        _say(str(error))
        return answering.answer(leaving(error))
    return answering.answer(answered)


def _signature(who: sites.Participant, ending: Ending) -> bytes:
    """The signature of a certificate, if it names the engine rightly: the assumptions are not the same for every
    engine."""
    try:
        engine = json.loads(ending.certificate)["happened"]["engine"]
    except (ValueError, KeyError, TypeError, RecursionError):
        engine = FLOWER  # what is malformed is refused below
    if engine != FLOWER:
        raise Refused("the certificate says that the study ran elsewhere than over Flower.")
    return who.agrees(ending)
