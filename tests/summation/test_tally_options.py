"""What a secure vote can be asked for: parameters, talliers, sizes of messages, and what must be assumed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from factories import make
from unspoken.roles.messages import largest_carried
from unspoken.study import Study, StudyError
from unspoken.summation.ballots import TALLIERS, Poll
from unspoken.summation.base import (
    Rejected,
    Session,
    Unsuitable,
    VoteShape,
)
from unspoken.summation.registry import open_session
from unspoken.summation.tally import Tally
from votes import MANY_ARE_RARE, Vote, random_ballots


@pytest.mark.parametrize(
    "wrong",
    [
        {"bound": 2**62},
        {"bound": -1},
        {"classes": 1},
        {"queries": 0},
        {"least_survivors": 0},
        {"least_survivors": 6},
        {"talliers": 1},
        {"talliers": 4},
        {"talliers": 9},
    ],
)
def test_parameters_that_cannot_be_right_are_refused(wrong: dict[str, int]) -> None:
    right = {"parties": 5, "least_survivors": 3, "queries": 4, "classes": 3, "bound": 2**62 - 1}
    Poll("digest", "labels", **right)
    with pytest.raises(ValueError, match="Expected"):
        Poll("digest", "labels", **(right | wrong))


def test_ballots_beyond_the_bound_or_of_another_shape_are_refused() -> None:
    vote = Vote(bound=10)
    for number in (11, -11, -(2**63)):
        with pytest.raises(ValueError, match="within the bound=10"):
            vote.party(0).submit(np.full((4, 3), number))
    with pytest.raises(ValueError, match="Expected 4 × 3 64-bit"):
        vote.party(0).submit(np.zeros((4, 4), dtype=np.int64))
    with pytest.raises(ValueError, match="Expected 4 × 3 64-bit"):
        vote.party(0).submit(np.zeros((4, 3)))  # type: ignore[arg-type]
    vote.party(0).submit(np.full((4, 3), -10))


@MANY_ARE_RARE
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_no_message_is_longer_than_stated_and_longer_ones_are_rejected(talliers: int, classes: int) -> None:
    """Shares of winners, and words between talliers, may have more bytes than a ballot."""
    vote = Vote(parties=3, queries=1000, classes=classes, talliers=talliers)
    vote.hold(random_ballots(3, 1000, classes))
    protocol, longest = vote.protocol.protocol, max(len(envelope.body) for envelope in vote.seen)
    assert protocol.longest_words <= longest <= vote.poll.largest_message < 1.3 * longest
    assert longest <= largest_carried(protocol.largest_message)
    for endpoint in vote.endpoints.values():
        before = endpoint.dump()
        with pytest.raises(Rejected, match="bytes came where"):
            endpoint.step(bytes(vote.poll.largest_message + 1))
        assert endpoint.dump() == before


@pytest.mark.parametrize(
    ("talliers", "rounds", "assumption"),
    [
        (3, 45, "at most one of the three talliers is curious or lies, and the other two keep"),
        (5, 53, "at most two of the five talliers are curious or lie, and the other three keep"),
        (7, 57, "at most three of the seven talliers are curious or lie, and the other four keep"),
    ],
)
def test_what_must_be_assumed_is_said(talliers: int, rounds: int, assumption: str) -> None:
    protocol = Vote(classes=10, talliers=talliers).protocol.protocol
    (assumed,), (noted,) = protocol.assumptions, protocol.notes
    assert assumed.startswith(assumption)
    assert noted.startswith("a tallier that lies can set any winner unnoticed")
    assert protocol.withstands_lies
    assert protocol.parameters == {"bits": 64, "talliers": talliers, "rounds": rounds}


BALLOTS = Session("digest", "ballots", 8, 0, 8, 60, 64, vote=VoteShape(20, 3))


def agreed(**options: Any) -> Study:
    """A study of a vote with the options of its summation."""
    return make("voting", parties=8, summation={"protocol": "tally", **options})


@pytest.mark.parametrize(
    ("options", "talliers", "deadline"),
    [({}, 3, 60.0), ({"talliers": 5}, 5, 60.0), ({"talliers": 7, "deadline": 1.5}, 7, 1.5), ({"deadline": 5}, 3, 5.0)],
)
def test_a_study_says_how_many_talliers_there_are(options: dict[str, Any], talliers: int, deadline: float) -> None:
    protocol = open_session(agreed(**options), BALLOTS)
    assert isinstance(protocol, Tally)
    assert (protocol.parameters["talliers"], protocol.deadline) == (talliers, deadline)
    assert len(protocol.helper_addresses) == talliers


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"talliers": 4}, r"\[summation\] talliers is 4, but should be 3, 5 or 7: the number of talliers"),
        ({"talliers": 9}, r"\[summation\] talliers is 9, but should be 3, 5 or 7"),
        ({"talliers": "3"}, r'\[summation\] talliers is "3", but should be 3, 5 or 7'),
        ({"deadline": 0}, r"\[summation\] deadline is 0, but should be a number above 0 and up to 3600: the seconds"),
        ({"deadline": 3601}, r"\[summation\] deadline is 3601, but should be"),
        ({"tallies": 3}, r"\[summation\] tallies is an unknown key; did you mean 'talliers'"),
    ],
)
def test_what_is_wrong_with_the_talliers_of_a_study_is_said(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(StudyError, match=complaint):
        open_session(agreed(**options), BALLOTS)


def test_a_vote_with_more_talliers_is_another_vote() -> None:
    labels = {Vote(talliers=talliers).poll.session.label() for talliers in TALLIERS}
    assert len(labels) == len(TALLIERS)


@pytest.mark.parametrize("dropouts", [4, 5, 1000])
def test_a_vote_that_all_may_leave_is_refused_with_what_would_do(dropouts: int) -> None:
    session = Session("digest", "labels", 4, 1, 4 - dropouts, 6, 64, vote=VoteShape(2, 3))
    told = rf"comes to {dropouts} of 4 parties, which leaves none to vote; set dropouts = 2\b"
    with pytest.raises(Unsuitable, match=told):
        Tally(session, Tally.options_type())
