"""A list of all parties' tokens in an order that nobody knows, for sampling records whose owners stay hidden.

Algorithm 2 of "Differentially private cross-silo federated learning" (Section 3.4). Each party has a secret token for
each record. It seals every token in a layer for each party; then party 0, 1, … in turn takes its layer off all onions,
shuffles them, and publishes the new list. The last list is the tokens in the clear.

What holds (Theorem 1). To a curious coalition, also one of the coordinator and all but two parties, the honest parties'
tokens are exchangeable: none can be told from another by whose it is. A malicious coalition can drop, replace, copy or
alter onions, but an onion gets past an honest party only in the one list that this party ever peels, so a last list
that has all honest tokens was shuffled by all honest parties. Every party knows its own onions in all their forms and
looks for them in every list, signatures cover all that was published before, and the last list counts only when all
parties have confirmed the same course of events. Otherwise nobody accepts a list, and the owner of a missing onion
names the party after whose turn it was missing.

What does not. A party can refuse to go on: there is no list then, and all tokens are thrown away. A party can do with
its own tokens as it likes (give some away, have more or fewer than it has records). The number of each party's tokens
is seen by everyone: under add/remove neighbours that number itself would have to be hidden, so this fits the replace
relation only.

The seed. The last party chooses the order of the list, so what samples from it must not be known before. Every party
commits to a secret number when it announces its key and reveals it with its confirmation: `seed` is made of all of
them, and is as good as random if one party is honest. (The last to reveal could refuse, and then there is no list.)

One list serves one round: with public batches of the same list, a record would take part in many rounds by a single
secret, its place, and the rounds' amplification would not compose. (The paper makes the list only once.)

Each party downloads all lists, about 24·N²·n bytes for N parties and n tokens: meant for some dozens of parties. An
engine delivers the messages for one endpoint in their order.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Endpoint,
    Envelope,
    Message,
    Rejected,
    Roster,
    address_of,
    decode,
)
from unspoken.summation.keys import Identity, SimulatedIdentities, public_key, verify
from unspoken.summation.onions import TOKEN_BYTES, digests, onion_bytes, onion_key, peel, permutation, split, wrap
from unspoken.types import Integers

DIGEST_BYTES = 32


class Signed(Message, frozen=True):
    """A party's message, relayed by the coordinator to everyone as it is."""

    session: str
    sender: int
    after: bytes
    """Digest of all that was published before."""
    body: memoryview
    signature: bytes


class Announce(Signed, frozen=True, tag="tokens/announce"):
    """The key of the party's layer, and the digest of its secret part of the seed."""


class Submit(Signed, frozen=True, tag="tokens/submit"):
    """The party's own onions, one after the other."""


class Publish(Signed, frozen=True, tag="tokens/publish"):
    """All onions without the party's layer, shuffled."""


class Confirm(Signed, frozen=True, tag="tokens/confirm"):
    """The list is complete, and has all tokens of this party; and the party's part of the seed."""


STAGES: tuple[type[Signed], ...] = (Announce, Submit, Publish, Confirm)
"""What is due from every party, one kind after the other."""


class TokenState(msgspec.Struct):
    """What everyone knows: the same at every endpoint that has taken the same messages."""

    after: bytes
    stage: int = 0
    bodies: dict[int, bytes] = {}
    """What came in this stage, by party: keys, or onions."""
    keys: list[bytes] = []
    commitments: list[bytes] = []
    parts_of_seed: list[bytes] = []
    counts: list[int] = []
    onions: bytes = b""
    turn: int = 0
    failed: str = ""


class TokenEndpoint(Endpoint):
    """Takes what parties publish, and checks all of it that can be checked without a secret."""

    state: TokenState

    def __init__(self, session_label: str, roster: Roster) -> None:
        self._roster, self._parties = roster, len(roster.parties)
        self._label = f"tokens/{self._parties}/{session_label}"

    def step(self, incoming: bytes) -> list[Envelope]:
        if self.state.failed:
            raise Aborted(self.state.failed)
        try:
            return self._step(incoming)
        except Aborted as error:
            self.state.failed = str(error)
            raise

    @property
    def complete(self) -> bool:
        """Have all parties confirmed the list?"""
        return self.state.stage == len(STAGES)

    @property
    def waiting_for(self) -> list[int]:
        """The parties whose messages are due."""
        if self.complete:
            return []
        if STAGES[self.state.stage] is Publish:
            return [self.state.turn]
        return [party for party in range(self._parties) if party not in self.state.bodies]

    def all_tokens(self) -> npt.NDArray[np.uint8]:
        """The tokens of all parties (n, 16), in the order that nobody knows; `Aborted` unless all confirmed them."""
        if self.state.failed:
            raise Aborted(self.state.failed)
        if not self.complete:
            raise Aborted(f"the list of tokens is not complete: parties {self.waiting_for} have not answered")
        return _rows(self.state.onions)

    def seed(self) -> int:
        """A public seed that nobody knew, or could choose, before the list was fixed; `Aborted` without a list."""
        self.all_tokens()
        return int.from_bytes(hashlib.sha256(b"".join(self.state.parts_of_seed)).digest()[:16])

    @property
    def counts(self) -> tuple[int, ...]:
        """How many tokens each party submitted; empty before all have."""
        return tuple(self.state.counts)

    @abstractmethod
    def _step(self, incoming: bytes) -> list[Envelope]:
        """As `step`, while nothing has failed."""

    def _take(self, incoming: bytes) -> None:
        """Take a party's message: `Rejected` if it is not due or not signed, `Aborted` if it is signed and wrong."""
        message: Signed = decode(incoming, Announce | Submit | Publish | Confirm)
        sender = message.sender
        if message.session != self._label:
            raise Rejected("a message of another study or another list of tokens came")
        if not 0 <= sender < self._parties:
            raise Rejected(f"a message came from party {sender}, who is not among the {self._parties} of the study")
        if self.complete or type(message) is not STAGES[self.state.stage] or sender not in self.waiting_for:
            raise Rejected(f"{type(message).__name__} came from party {sender} when it was not due")
        verify(self._roster.parties[sender], _statement(message), message.signature, f"party {sender}")
        if message.after != self.state.after:
            raise Aborted(f"party {sender} goes on from another course of events than what was published here")
        match message:
            case Announce():
                self._take_key(sender, message.body)
            case Submit():
                self._take_onions(sender, message.body)
            case Publish():
                self._take_list(sender, message.body)
            case _:
                self._take_confirmation(sender, message.body)

    def _take_key(self, sender: int, key: memoryview) -> None:
        state = self.state
        if len(key) != KEY_BYTES + DIGEST_BYTES:
            raise Aborted(
                f"party {sender} announced a key and a digest of {len(key)} bytes; {KEY_BYTES + DIGEST_BYTES} were due"
            )
        if key[:KEY_BYTES] in [body[:KEY_BYTES] for body in state.bodies.values()]:
            raise Aborted(f"party {sender} announced a key that is another party's")
        if len(bodies := self._gather(sender, key)) == self._parties:
            state.keys = [body[:KEY_BYTES] for body in bodies]
            state.commitments = [body[KEY_BYTES:] for body in bodies]
            self._close_stage(b"".join(bodies))

    def _take_onions(self, sender: int, onions: memoryview) -> None:
        state, size = self.state, onion_bytes(self._parties)
        if len(onions) % size:
            raise Aborted(f"party {sender} submitted {len(onions)} bytes; its onions must have {size} each")
        if len(bodies := self._gather(sender, onions)) == self._parties:
            state.counts = [len(body) // size for body in bodies]
            state.onions = b"".join(bodies)
            self._close_stage(repr(state.counts).encode() + self._checked_digest("all submissions"))

    def _take_list(self, sender: int, onions: memoryview) -> None:
        state, size = self.state, onion_bytes(self._parties - sender - 1)
        if len(onions) != size * sum(state.counts):
            raise Aborted(
                f"party {sender} published a list of {len(onions)} bytes; "
                f"{sum(state.counts)} onions of {size} bytes were due"
            )
        state.onions, state.turn = bytes(onions), state.turn + 1
        digest = self._checked_digest(f"party {sender}")
        if state.turn == self._parties:
            self._close_stage(digest)
        else:
            self._log(digest)

    def _take_confirmation(self, sender: int, body: memoryview) -> None:
        if hashlib.sha256(body).digest() != self.state.commitments[sender]:
            raise Aborted(f"party {sender} confirmed with another part of the seed than it had committed to")
        if len(bodies := self._gather(sender, body)) == self._parties:
            self.state.parts_of_seed = bodies
            self._close_stage(b"".join(bodies))

    def _checked_digest(self, publisher: str) -> bytes:
        """The digest of the present list, whose onions must all differ: a copy would mark what it is a copy of."""
        found = digests(split(self.state.onions, self._parties - self.state.turn))
        if len(set(found)) != len(found):
            raise Aborted(f"the list of {publisher} has the same onion twice: someone copied it")
        self._look_at(found)
        return b"".join(found)

    def _look_at(self, found: list[bytes]) -> None:
        """A party looks for its own onions."""

    def _gather(self, sender: int, body: memoryview) -> list[bytes]:
        """Keep one party's part of a stage: all parts so far, in the parties' order."""
        self.state.bodies[sender] = bytes(body)
        return [self.state.bodies[party] for party in sorted(self.state.bodies)]

    def _close_stage(self, published: bytes) -> None:
        self._log(published)
        self.state.stage += 1
        self.state.bodies = {}

    def _log(self, published: bytes) -> None:
        self.state.after = hashlib.sha256(self.state.after + published).digest()


class PartyState(TokenState, kw_only=True):
    own: bytes
    layer_secret: bytes
    shuffle_key: bytes
    part_of_seed: bytes
    marks: list[bytes] = []
    """Digests of this party's onions in each of their forms, from all layers to none."""


class TokenParty(TokenEndpoint):
    def __init__(
        self, session_label: str, roster: Roster, index: int, identity: Identity, count: int, secrets: SecretStream
    ) -> None:
        super().__init__(session_label, roster)
        self._index, self._identity = index, identity
        self.state: PartyState = PartyState(
            after=_beginning(self._label),
            layer_secret=secrets.key(),
            shuffle_key=secrets.key(),
            part_of_seed=secrets.key(),
            own=secrets.take(TOKEN_BYTES * count),
        )

    @property
    def tokens(self) -> npt.NDArray[np.uint8]:
        """This party's secret tokens (n_i, 16), one for each record."""
        return _rows(self.state.own)

    def positions(self) -> Integers:
        """Where in the list of all tokens this party's are: of each record, in the order of its records."""
        place = {row.tobytes(): index for index, row in enumerate(self.all_tokens())}
        return np.array([place[row.tobytes()] for row in self.tokens], dtype=np.int64)

    def _step(self, incoming: bytes) -> list[Envelope]:
        state = self.state
        if not incoming:
            if state.stage:
                raise Rejected("this party has begun already")
            commitment = hashlib.sha256(state.part_of_seed).digest()
            return [self._signed(Announce, onion_key(state.layer_secret) + commitment)]
        before = state.stage, state.turn
        self._take(incoming)
        if (state.stage, state.turn) == before or self.complete:
            return []
        return self._answer()

    def _answer(self) -> list[Envelope]:
        """What is due from this party now that a stage, or another party's turn, is over."""
        match STAGES[self.state.stage]:
            case stage if stage is Submit:
                return [self._signed(Submit, self._sealed())]
            case stage if stage is Publish:
                return [self._signed(Publish, self._peeled())] if self.state.turn == self._index else []
            case _:
                return [self._signed(Confirm, self.state.part_of_seed)]

    def _sealed(self) -> bytes:
        """This party's onions. Their forms are remembered, to be looked for in every list."""
        state = self.state
        if state.keys[self._index] != onion_key(state.layer_secret):
            raise Aborted("another key than this party's was announced in its name")
        forms = [wrap(token.tobytes(), state.keys) for token in self.tokens]
        state.marks = [b"".join(digests([form[layer] for form in forms])) for layer in range(self._parties + 1)]
        return b"".join(form[0] for form in forms)

    def _peeled(self) -> bytes:
        """The list without this party's layer, shuffled: once only, as a second list would tell onions apart."""
        state = self.state
        inner = peel(split(state.onions, self._parties - self._index), state.layer_secret)
        if len(set(inner)) != len(inner):
            raise Aborted("two onions hold the same: someone copied one")
        order = permutation(len(inner), SecretStream(state.shuffle_key))
        # Forgotten, so that who breaks in later does not learn the order either.
        state.layer_secret = state.shuffle_key = b""
        return b"".join(inner[index] for index in order)

    def _look_at(self, found: list[bytes]) -> None:
        marks, present = self.state.marks[self.state.turn], set(found)
        own = [marks[start : start + DIGEST_BYTES] for start in range(0, len(marks), DIGEST_BYTES)]
        if lost := sum(mark not in present for mark in own):
            # The first list is of signed submissions: only a party that lost its state signs two.
            guilty = f"party {self.state.turn - 1}" if self.state.turn else f"a second start of party {self._index}"
            raise Aborted(f"{guilty} dropped or changed {lost} of the {len(own)} onions of party {self._index}")

    def _signed(self, kind: type[Signed], body: bytes) -> Envelope:
        unsigned = kind(self._label, self._index, self.state.after, memoryview(body), b"")
        signature = self._identity.sign(_statement(unsigned))
        message = msgspec.structs.replace(unsigned, signature=signature)
        return Envelope(COORDINATOR, msgspec.msgpack.encode(message))


class TokenCoordinator(TokenEndpoint):
    """Relays what parties publish, in one order for all. It sees how many tokens each party has."""

    def __init__(self, session_label: str, roster: Roster) -> None:
        super().__init__(session_label, roster)
        self.state: TokenState = TokenState(after=_beginning(self._label))

    def tokens(self) -> npt.NDArray[np.uint8]:
        """The last list (n, 16); `Aborted` unless all parties confirmed it."""
        return self.all_tokens()

    def _step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        self._take(incoming)
        return [Envelope(address_of(party), incoming) for party in range(self._parties)]


class TokenProtocol:
    """Makes the endpoints of one list; its parties are made up, for simulation.

    `session_label` binds all messages to the study and to this list: the study's digest and a name that is used once
    (`Session.label()` will do). `counts` is the number of tokens of each party: only that party knows it beforehand,
    and everyone as soon as its onions come.
    """

    def __init__(self, session_label: str, counts: Sequence[int], secrets: SecretStream) -> None:
        self._label, self._counts = session_label, tuple(counts)
        self._identities = SimulatedIdentities(secrets.key(), len(self._counts))
        self._roster = Roster(self._identities, public_key(secrets.key()))

    def coordinator(self) -> TokenCoordinator:
        return TokenCoordinator(self._label, self._roster)

    def party(self, index: int, secrets: SecretStream) -> TokenParty:
        identity, count = self._identities.identity(index), self._counts[index]
        return TokenParty(self._label, self._roster, index, identity, count, secrets)

    def upload_bytes(self) -> int:
        """How many bytes one party sends at most."""
        parties, total = len(self._counts), sum(self._counts)
        last = self.party(parties - 1, SecretStream())
        own = onion_bytes(parties) * max(self._counts)
        keys, last_list = KEY_BYTES + DIGEST_BYTES, onion_bytes(parties - 1) * total
        bodies = {Announce: keys, Submit: own, Publish: last_list, Confirm: DIGEST_BYTES}
        return sum(len(last._signed(kind, bytes(size)).body) for kind, size in bodies.items())


def _statement(message: Signed) -> bytes:
    """What a party signs: for this study and list, in this stage, after all that was published, this body."""
    kind = message.__struct_config__.tag
    return (
        f"{kind}/{message.session}/{message.sender}/".encode() + message.after + hashlib.sha256(message.body).digest()
    )


def _beginning(label: str) -> bytes:
    return hashlib.sha256(label.encode()).digest()


def _rows(tokens: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(tokens, dtype=np.uint8).reshape(-1, TOKEN_BYTES)
