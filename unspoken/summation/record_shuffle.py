"""A list of all parties' tokens in a secret order, for sampling records without knowing their owners.

Algorithm 2 of "Differentially private cross-silo federated learning" (Section 3.4). Each party has a secret token for
each record. It seals every token in a layer for each party; then party 0, 1, … in turn removes its layer from all
onions, shuffles them, and publishes the new list. The last list is the tokens in the clear.

Guarantees (Theorem 1). To a curious coalition, even of the coordinator and all but two parties, the honest parties'
tokens are exchangeable: nobody can tell their owners. A malicious coalition can drop, replace, copy or alter onions,
but an honest party peels one list only, so a last list with all honest tokens was shuffled by all honest parties. Every
party knows its own onions in all their forms and looks for them in every list, signatures cover everything published
before, and the last list counts only when all parties have confirmed the same history. Otherwise nobody accepts a list,
and the owner of a missing onion names the party after whose turn it was missing.

Limits. Any party can stop the protocol; then there is no list, and all tokens are discarded. A party that stopped it by
an invalid message is named, with what it signed (`shuffle_evidence` says which faults that proves to others). Who sent
an onion that cannot be opened is known in the first list only; later nobody knows whose it is. A party can do as it
likes with its own tokens (give some away, have more or fewer than records), but their number must be within the plan's
bounds before anyone works with them. Everyone sees the number of each party's tokens: under add/remove neighbours that
number would have to be hidden, so this fits the replace relation only.

The seed. The last party chooses the order of the list, so the sampling from it must not be known before. Every party
commits to a secret number when it announces its key, and reveals it with its confirmation: `seed` combines all of them
and is uniform if one party is honest.

The last to reveal. A coalition with the coordinator knows the seed before the others do, and may then refuse, so that
there is no list. Over several tries it can thus choose among as many lists as honest parties reveal their numbers for.
It chooses by what it knows: where its own tokens are, and which places are in the batch. Given these, the honest tokens
are still exchangeable: every set of honest records of the same size is equally likely to be in the batch. So all that
the coalition can influence is the number of honest records in it. How often this number exceeds what the noise is sized
for is counted in δ for every list that a party may confirm (`methods.training.batches`), so this choice is paid for.
Refusing before anyone has revealed tells the coalition nothing.

One list serves one round: with public batches from the same list, a record's part in many rounds would depend on a
single secret, its position, and the amplification of the rounds would not compose. (The paper makes the list once.)

Each party downloads all lists, about 24·N²·n bytes for N parties and n tokens, so this is for some dozens of parties.
An engine delivers the messages for one endpoint in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Envelope,
    Rejected,
    Roster,
    SignedStatement,
    Unsuitable,
    address_of,
)
from unspoken.summation.keys import Identity, verify
from unspoken.summation.mixnet import (
    TOKEN_BYTES,
    Undecryptable,
    digests,
    onion_key,
    peel,
    permutation,
    split,
    wrap,
)
from unspoken.summation.shuffle_course import (
    DIGEST_BYTES,
    STAGES,
    Announce,
    Confirm,
    Publish,
    ShuffleEndpoint,
    ShuffleSession,
    ShuffleState,
    Signed,
    Submit,
    beginning,
    commitment,
    evidence,
    rows,
    statement,
)
from unspoken.summation.shuffle_evidence import convicted_parties
from unspoken.types import Integers


class PartyState(ShuffleState, kw_only=True):
    own: bytes
    layer_secret: bytes
    shuffle_key: bytes
    part_of_seed: bytes
    marks: list[bytes] = []
    """Digests of this party's onions in each of their forms, from all layers to none"""


class ShuffleParty(ShuffleEndpoint):
    def __init__(
        self, session: ShuffleSession, roster: Roster, index: int, identity: Identity, count: int, secrets: SecretStream
    ) -> None:
        super().__init__(session, roster)
        if not session.least <= count <= session.most:
            raise ValueError(f"Expected {session.least} <= count={count} <= {session.most}.")
        self._index, self._identity = index, identity
        self.state: PartyState = PartyState(
            after=beginning(self._label),
            layer_secret=secrets.key(),
            shuffle_key=secrets.key(),
            part_of_seed=secrets.key(),
            own=secrets.take(TOKEN_BYTES * count),
        )

    @property
    def tokens(self) -> npt.NDArray[np.uint8]:
        """This party's secret tokens (n_i, 16), one for each record."""
        return rows(self.state.own)

    def positions(self) -> Integers:
        """The positions of this party's tokens in the whole list, in the order of its records."""
        place = {row.tobytes(): index for index, row in enumerate(self.all_tokens())}
        return np.array([place[row.tobytes()] for row in self.tokens], dtype=np.int64)

    def _step(self, incoming: bytes) -> list[Envelope]:
        state = self.state
        if not incoming:
            if state.stage:
                raise Rejected("this party has begun already")
            promised = commitment(self._label, self._index, state.part_of_seed)
            return [self._signed(Announce, onion_key(state.layer_secret) + promised)]
        before = state.stage, state.turn
        self._take(incoming)
        if (state.stage, state.turn) == before or self.complete:
            return []
        return self._answer()

    def _answer(self) -> list[Envelope]:
        """The message due from this party after a stage, or another party's turn, has ended."""
        match STAGES[self.state.stage]:
            case stage if stage is Submit:
                return [self._signed(Submit, self._sealed())]
            case stage if stage is Publish:
                return [self._signed(Publish, self._peeled())] if self.state.turn == self._index else []
            case _:
                return [self._signed(Confirm, self.state.part_of_seed)]

    def _sealed(self) -> bytes:
        """This party's onions. Digests of all their forms are kept, so that the party can find them in every list."""
        state = self.state
        if state.keys[self._index] != onion_key(state.layer_secret):
            raise Aborted("someone announced a key in this party's name")
        forms = [wrap(token.tobytes(), state.keys) for token in self.tokens]
        state.marks = [b"".join(digests([form[layer] for form in forms])) for layer in range(self._parties + 1)]
        return b"".join(form[0] for form in forms)

    def _peeled(self) -> bytes:
        """The list without this party's layer, shuffled; once only, as a second list would tell onions apart."""
        state = self.state
        try:
            inner = peel(split(state.onions, self._parties - self._index), state.layer_secret)
        except Undecryptable as error:
            raise Aborted(str(error), self._owners([error.place])) from None
        if len(set(inner)) != len(inner):
            copies = [place for place, onion in enumerate(inner) if inner.count(onion) > 1]
            raise Aborted("two onions hold the same token: someone copied one", self._owners(copies))
        order = permutation(len(inner), SecretStream(state.shuffle_key))
        # Deleted, so that a later intruder does not learn the order either.
        state.layer_secret = state.shuffle_key = b""
        return b"".join(inner[index] for index in order)

    def _owners(self, places: list[int]) -> tuple[str, ...]:
        """The owners of these onions. Only the first party to peel can tell them, because nobody has shuffled before
        it."""
        if self._index:
            return ()
        ends = np.cumsum(self.state.counts)
        return tuple(sorted({address_of(int(np.searchsorted(ends, place, side="right"))) for place in places}))

    def _forget(self) -> None:
        state = self.state
        state.own = state.layer_secret = state.shuffle_key = state.part_of_seed = state.onions = b""
        state.marks, state.bodies = [], {}

    def _look_at(self, found: list[bytes]) -> None:
        marks, present = self.state.marks[self.state.turn], set(found)
        own = [marks[start : start + DIGEST_BYTES] for start in range(0, len(marks), DIGEST_BYTES)]
        if lost := sum(mark not in present for mark in own):
            # The first list holds signed submissions: only a party that lost its state signs two.
            guilty, blamed = f"a second start of party {self._index}", self._index
            if self.state.turn:
                guilty, blamed = f"party {self.state.turn - 1}", self.state.turn - 1
            raise Aborted(
                f"{guilty} dropped or changed {lost} of the {len(own)} onions of party {self._index}",
                (address_of(blamed),),
            )

    def _signed(self, kind: type[Signed], body: bytes) -> Envelope:
        unsigned = kind(self._label, self._index, self.state.after, memoryview(body), b"")
        signature = self._identity.sign(statement(unsigned))
        message = msgspec.structs.replace(unsigned, signature=signature)
        return Envelope(COORDINATOR, msgspec.msgpack.encode(message))


class CoordinatorState(ShuffleState, kw_only=True):
    taken: list[dict[int, SignedStatement]] = []
    """What was taken in each stage, by party"""
    doubled: dict[int, tuple[SignedStatement, SignedStatement]] = {}
    """The two messages of parties that signed two for one stage; the first one counts"""


class ShuffleCoordinator(ShuffleEndpoint):
    """Relays what parties publish, in one order for all. It sees the number of each party's tokens."""

    def __init__(self, session: ShuffleSession, roster: Roster) -> None:
        super().__init__(session, roster)
        self.state: CoordinatorState = CoordinatorState(after=beginning(self._label), taken=[{} for _ in STAGES])

    @property
    def blamed(self) -> dict[str, str]:
        """The parties that signed two messages for one stage. The list goes on with the first."""
        return {address_of(party): "it signed two different messages" for party in self.state.doubled}

    @property
    def evidence(self) -> tuple[SignedStatement, ...]:
        """The two messages of each of them."""
        return tuple(each for both in self.state.doubled.values() for each in both)

    def _note(self, message: Signed) -> None:
        self.state.taken[self.state.stage][message.sender] = evidence(message)

    def _contradicts(self, message: Signed) -> bool:
        sender, other = message.sender, evidence(message)
        taken = self.state.taken[STAGES.index(type(message))].get(sender)
        if taken is None or taken.statement == other.statement or sender in self.state.doubled:
            return False
        verify(self._roster.parties[sender], other.statement, other.signature, f"party {sender}")
        self.state.doubled[sender] = taken, other
        return True

    def tokens(self) -> npt.NDArray[np.uint8]:
        """The last list (n, 16); `Aborted` unless all parties have confirmed it."""
        self._check_alive()
        try:
            return self.all_tokens()
        except Aborted as error:
            raise Aborted(str(error), tuple(map(address_of, self.waiting_for))) from None

    def _suspected(self, sender: int) -> tuple[str, ...]:
        return (address_of(sender),)

    def _step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        everyone = range(self._parties) if self._take(incoming) else ()
        return [Envelope(address_of(party), incoming) for party in everyone]


class Options(Section):
    """A shuffle has no options."""


class RecordShuffle:
    """Makes the endpoints of one list of tokens, in the same way as a `Protocol`. It has no helpers."""

    def __init__(self, session: ShuffleSession, options: Options, roster: Roster | None = None) -> None:
        if roster is not None and len(roster.parties) != session.parties:
            raise Unsuitable(
                "roster.parties", f"has {len(roster.parties)} keys, but {session.parties} parties take part"
            )
        self.session, self._roster = session, roster

    def with_roster(self, roster: Roster) -> RecordShuffle:
        """The same session, ready to make endpoints."""
        return RecordShuffle(self.session, Options(), roster)

    @property
    def roster(self) -> Roster:
        """The public keys of all who take part."""
        if self._roster is None:
            raise ValueError("Expected a roster: RecordShuffle needs the public keys to make endpoints.")
        return self._roster

    def party(self, index: int, identity: Identity, secrets: SecretStream, records: int) -> ShuffleParty:
        """The endpoint of a party. Its number of records becomes public with its onions."""
        return ShuffleParty(self.session, self.roster, index, identity, records, secrets)

    def coordinator(self, identity: Identity, secrets: SecretStream) -> ShuffleCoordinator:
        return ShuffleCoordinator(self.session, self.roster)

    @property
    def helper_addresses(self) -> tuple[str, ...]:
        return ()

    def convicts(self, evidence: Sequence[SignedStatement]) -> dict[str, str]:
        """The parties that these statements prove at fault, and the fault."""
        return convicted_parties(self.session, evidence)

    def upload_bytes(self, records: int, everyone: int) -> int:
        """The most bytes that a party with so many records sends, if there are `everyone` records in total.

        The first party publishes the longest onions, and the last has the longest index.
        """
        tokens: dict[type[Signed], int] = {Announce: 0, Submit: records, Publish: everyone, Confirm: 0}
        return sum(self.session.size(kind, count) for kind, count in tokens.items())
