"""The statements that parties of SecAgg sign: short for any number of parties, bound to every bit of their lists."""

from __future__ import annotations

import numpy as np

from unspoken.summation.incoming import bitmap
from unspoken.summation.keys import Identity, is_signed, verified_once
from unspoken.summation.secagg_messages import agreed_statement, masked_statement

PARTIES = 20_000


def listed(*without: int) -> bytes:
    everyone = np.ones(PARTIES, dtype=np.bool_)
    everyone[list(without)] = False
    return bitmap(everyone)


def test_a_statement_is_bound_to_both_lists_and_to_the_attempt() -> None:
    statements = {
        agreed_statement("one", listed(), listed()),
        agreed_statement("two", listed(), listed()),
        agreed_statement("one", listed(7), listed()),
        agreed_statement("one", listed(), listed(7)),
        agreed_statement("one", listed(7), listed(7)),
        agreed_statement("one", listed(), listed(PARTIES - 1)),
        masked_statement("one", 3, listed()),
        masked_statement("one", 4, listed()),
        masked_statement("one", 3, listed(7)),
        masked_statement("two", 3, listed()),
    }
    assert len(statements) == 10


def test_many_parties_in_one_process_check_a_signature_once() -> None:
    """Each of them needs thousands of signatures on the same statement."""
    signer = Identity(bytes(32))
    signatures = [signer.sign(agreed_statement("one", listed(), listed(number))) for number in range(3)]
    before = verified_once.cache_info().hits
    for _ in range(5):
        for number, signature in enumerate(signatures):
            assert is_signed(signer.public, agreed_statement("one", listed(), listed(number)), signature)
    assert verified_once.cache_info().hits - before >= 12
