"""A secure vote: talliers find, for each query, the class with the largest total, and open nothing else.

Each party has ballots of Q queries × K classes, integers that include its share of the noise. It splits them into n
parts that add up to them modulo 2⁶⁴, one for each of n = 2t + 1 talliers: n − 1 parts are 32-byte seeds and one is
explicit, so a party uploads one vector. Each tallier adds the parts of the same parties. In the first round the
talliers make a replicated sharing of the n sums (see `replicated`), and on it they compute the argmax (see `argmax`).
With three talliers this takes 1 + 11·⌈log₂ K⌉ rounds (13 with five, 14 with seven); in each, every tallier sends one
message to the t before it.

Which ballots are counted. A party's ballots are identified by a one-time key, which it signs; talliers tell the
coordinator the keys and signatures of the ballots that they hold. A party that gave talliers different keys is left out
and named, with the two signatures. The coordinator signs one list of parties and keys; a tallier counts it if it holds
exactly these ballots, of at least the agreed number of parties, and begins when all others have said that they count
the same. So a coordinator that shows talliers different lists gets no count, and its signatures prove it (see
`tally_agreement`).

Security. At most t curious talliers, together with the coordinator and any parties, see uniformly random words and the
winners. If they lie in any way, they learn at most the noisy totals of the honest parties on one list. The reason: of
each honest party's n parts, t + 1 are held by honest talliers and are uniformly random except for their sum, so
whatever honest talliers do with the sums of these parts can be simulated from the noisy totals. A guarantee that allows
the noisy totals to be published, as that of votes does, therefore still holds. For a second list in the same attempt,
every honest tallier would have to count twice: it is enough if one of them neither loses its state nor goes back to an
older one. (So states are dumped before messages are sent.)

No two talliers get the same part, so whatever a party sends is some ballot, and cannot make shares inconsistent. (If a
party sent all C(n, t) shares itself, talliers would have to compare them and add C(n − 1, t) times as much, and any t +
1 would know its ballot.) Messages between talliers are sealed under keys made for this vote, so the coordinator that
relays them sees only their length; an altered, repeated or misdirected one is rejected. If a tallier dies there is no
result. But once the first tallier has opened its shares, curious ones may know the winners, so count a vote as spent
once its count has begun.

Limits. Any t + 1 talliers together know the totals, and all n every ballot. A party can put any numbers into its
ballots and so decide any winner. So can a tallier that lies about its sum of parts, which nobody else knows. What is
noticed: shares of the winners that differ between their holders, winners that are no classes, words of a wrong length.
That holders compare other shares would find a liar who tells them different words, but none who tells all the same
wrong ones: if the sets A and B have no tallier in common, only one tallier can compute xₐyᵦ. Proofs of correct products
(Chida et al. 2018, Boneh et al. 2019) cost at least as much again as the products, and would still not check the sums
of the first round. So the winners are right only if all talliers and parties are honest, however many talliers there
are.

Ties. Before ballots are combined, the talliers commit to seeds, and they reveal them with the list of parties. Together
the seeds give each query an order of the classes; among equal totals the first in that order wins, so each has the same
probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.study import Section
from unspoken.summation import sizes
from unspoken.summation.ballots import (
    Ballot,
    Poll,
    TallyParty,
    address,
    explicit_part,
    statement,
)
from unspoken.summation.base import (
    COORDINATOR,
    Openable,
    Protocol,
    Roster,
    Session,
    SignedStatement,
    Unsuitable,
    address_of,
)
from unspoken.summation.evidence import by_party, differ
from unspoken.summation.keys import PUBLIC_BYTES, SIGNATURE_BYTES, TAG_BYTES, Identity
from unspoken.summation.remedies import has_honest, one_of, remedies
from unspoken.summation.tallier import Tallier, TallierSetup
from unspoken.summation.tally_agreement import count_statement
from unspoken.summation.tally_coordinator import TallyCoordinator

__all__ = ["Poll", "Tallier", "Tally", "TallyCoordinator", "TallyParty"]


class Options(Section):
    """The keys of [summation] for a secure vote."""

    talliers: Literal[3, 5, 7] = Field(
        3, description="3, 5 or 7: the number of talliers, of which fewer than half may be curious"
    )
    deadline: float = Field(
        60.0,
        gt=0.0,
        le=3600.0,
        description="a number above 0 and up to 3600: the seconds within which a tallier must answer",
    )


class Tally(Protocol):
    """A vote instead of a sum; its session must have the shape of a vote."""

    options_type = Options
    serves = frozenset({"vote"})

    def __init__(self, session: Session, options: Options, roster: Roster | None = None) -> None:
        if (vote := session.vote) is None:
            raise Unsuitable(
                "summation.protocol",
                'is "tally", which only counts votes, but the method needs sums; use a protocol for sums, such as '
                '"compute-nodes"',
            )
        if session.least_survivors < 1:
            numbers = session.parties, session.colluding, session.parties - session.least_survivors
            raise Unsuitable(
                "privacy.dropouts",
                f"comes to {numbers[2]} of {session.parties} parties, which leaves none to vote; "
                + one_of(remedies(*numbers, fits=has_honest)),
            )
        facts = (session.study, session.name, session.parties, session.least_survivors)
        shape = (vote.queries, vote.classes, vote.bound)
        self.poll = Poll(*facts, *shape, talliers=options.talliers, attempt=session.attempt)
        self.deadline = options.deadline
        """The seconds within which a tallier must answer"""
        super().__init__(self.poll.session, options, roster)

    @property
    def withstands_lies(self) -> bool:
        """True: whatever it says to whom, at most the noisy totals of one list of parties become known."""
        return True

    @property
    def assumptions(self) -> tuple[str, ...]:
        count, curious = self.poll.talliers, self.poll.sharing.threshold
        words = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 7: "seven"}
        do, others = "is curious or lies" if curious == 1 else "are curious or lie", words[count - curious]
        return (
            f"at most {words[curious]} of the {words[count]} talliers {do}, and the other {others} keep to themselves "
            "what they receive, and never forget that they counted",
        )

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            "a tallier that lies can set any winner unnoticed, as any party can by its ballots, and learn more of the "
            "noisy totals, for which the promise holds as well",
        )

    def openable(self, colluding: int) -> Openable:
        return Openable(self.session.least_survivors)

    @property
    def parameters(self) -> dict[str, int]:
        return {"bits": 64, "talliers": self.poll.talliers, "rounds": self.poll.rounds}

    def convicts(self, evidence: Sequence[SignedStatement]) -> dict[str, str]:
        label, convicted = self.session.label(), {}
        for party, signed in by_party(evidence, self.session.parties).items():
            if differ(signed, statement(label, party, b"")):
                convicted[address_of(party)] = "it signed two one-time keys"
        if differ((each for each in evidence if each.signer == COORDINATOR), count_statement(label, b"")):
            convicted[COORDINATOR] = "it signed two lists of parties to count"
        return convicted

    def upload_bytes(self) -> int:
        """The bytes of one party: masked ballots for one tallier, seeds of the masks for the others."""
        last, explicit = self.poll.parties - 1, explicit_part(self.poll.parties - 1, self.poll)
        label, sender = sizes.of_text(self.session.label()), sizes.of_integer(last)
        key, signature = sizes.of_bytes(PUBLIC_BYTES), sizes.of_bytes(SIGNATURE_BYTES)
        plain = [self.session.vector_bytes if index == explicit else KEY_BYTES for index in range(self.poll.talliers)]
        return sum(
            sizes.of_message(
                Ballot, label, sender, sizes.of_integer(index), key, signature, sizes.of_bytes(size + TAG_BYTES)
            )
            for index, size in enumerate(plain)
        )

    @property
    def longest_words(self) -> int:
        return self.poll.longest_words

    @property
    def helper_addresses(self) -> tuple[str, ...]:
        return tuple(address(index) for index in range(self.poll.talliers))

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> TallyParty:
        return TallyParty(self.poll, self.roster, index, identity, secrets)

    def coordinator(self, identity: Identity, secrets: SecretStream) -> TallyCoordinator:
        return TallyCoordinator(self.poll, self.roster, identity)

    def helper(self, index: int, identity: Identity, secrets: SecretStream) -> Tallier:
        return Tallier(self.poll, self.roster, index, identity, secrets)

    def setup(self, index: int, identity: Identity, root: bytes) -> TallierSetup:
        """Everything that a tallier needs to begin in another process; its secrets are drawn from `root`."""
        roster = self.roster
        return TallierSetup(
            self.poll, list(roster.parties), roster.coordinator, roster.helpers, index, identity.secret, root
        )
