"""Keys for simulations: the only place that knows everybody's secrets.

A real study lists the public keys in its [roster], and each participant has its own secret. A simulation makes up all
of them from one stream of secrets, on demand: a million parties cost nothing up front.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Generic, TypeVar, overload

from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Coordinator, Endpoint, Party, Protocol, Roster, Session
from unspoken.summation.keys import Identity

AnyProtocol = TypeVar("AnyProtocol", bound=Protocol)


class SimulatedIdentities(Sequence[bytes]):
    """The identities of all parties of a simulation, made on demand from one secret.

    As a sequence it holds the public keys, for a roster.
    """

    def __init__(self, root: bytes, parties: int) -> None:
        self._root, self._parties = root, parties
        self._public: dict[int, bytes] = {}

    def identity(self, party: int) -> Identity:
        return Identity(hashlib.sha256(self._root + party.to_bytes(8, "big")).digest())

    def __len__(self) -> int:
        return self._parties

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[party] for party in range(*index.indices(self._parties))]
        if not 0 <= index < self._parties:
            raise IndexError(index)
        if index not in self._public:
            self._public[index] = self.identity(index).public
        return self._public[index]


class SimulatedKeys:
    """The secrets of all who take part in a simulation, and the matching roster."""

    def __init__(self, secrets: SecretStream, parties: int, helpers: int = 0) -> None:
        self.coordinator = Identity(secrets.key())
        self._identities = SimulatedIdentities(secrets.key(), parties)
        self._helpers = [(secrets.key(), secrets.key()) for _ in range(helpers)]
        self._coordinator_root = secrets.key()
        public = tuple(self.helper(index).public for index in range(helpers))
        self.roster = Roster(self._identities, self.coordinator.public, public)

    def identity(self, index: int) -> Identity:
        """A party's identity."""
        return self._identities.identity(index)

    def helper(self, index: int) -> Identity:
        """A helper's identity."""
        return Identity(self._helpers[index][0])

    def helper_root(self, index: int) -> bytes:
        """The key of a helper's own stream of secrets."""
        return self._helpers[index][1]

    def coordinator_secrets(self) -> SecretStream:
        """The coordinator's own stream of secrets, from its beginning."""
        return SecretStream(self._coordinator_root)


class SimulatedEndpoints(Generic[AnyProtocol]):
    """A protocol with all endpoints in one process, and made-up keys."""

    def __init__(self, protocol: AnyProtocol, secrets: SecretStream) -> None:
        self.keys = SimulatedKeys(secrets, protocol.session.parties, len(protocol.helper_addresses))
        self.protocol = protocol.with_roster(self.keys.roster)

    @property
    def session(self) -> Session:
        return self.protocol.session

    def party(self, index: int, secrets: SecretStream) -> Party:
        return self.protocol.party(index, self.keys.identity(index), secrets)

    def coordinator(self) -> Coordinator:
        return self.protocol.coordinator(self.keys.coordinator, self.keys.coordinator_secrets())

    def helpers(self) -> dict[str, Endpoint]:
        """New endpoints for all helpers, by address."""
        return {
            address: self.protocol.helper(index, self.keys.helper(index), SecretStream(self.keys.helper_root(index)))
            for index, address in enumerate(self.protocol.helper_addresses)
        }
