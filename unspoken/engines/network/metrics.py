"""A study's status as text for Prometheus (the text exposition format, version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from unspoken.engines.network.status import STAGES, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics(status: Status) -> str:
    """All figures, one a line."""
    return "\n".join(_lines(status)) + "\n"


def _lines(status: Status) -> Iterator[str]:
    news = status.news
    yield from _family("study_info", "gauge", "The study that is served.", {_study(status): 1})
    stages = {f'{{stage="{stage}"}}': int(stage == news.stage) for stage in STAGES}
    yield from _family("stage", "gauge", "The stage under way has 1, others have 0.", stages)
    yield from _one("stage_seconds_left", "gauge", "Seconds until the stage is closed at the latest.", news.seconds)
    there = {
        f'{{role="{role}"}}': sum(each.is_there for each in status.participants if each.role == role)
        for role in ("party", "helper")
    }
    yield from _family("present", "gauge", "Participants that are connected.", there)
    expected = {
        f'{{role="{role}"}}': sum(each.role == role for each in status.participants) for role in ("party", "helper")
    }
    yield from _family("expected", "gauge", "Participants of the study.", expected)
    yield from _one("round", "gauge", "The number of the request under way.", news.round)
    yield from _one("rounds", "gauge", "Requests in all, as planned.", news.rounds)
    yield from _one("attempt", "gauge", "The number of the attempt at the request under way.", news.attempt)
    yield from _one("attempts_planned", "gauge", "Attempts at a request that the promise covers.", status.attempts)
    yield from _one("survivors", "gauge", "Parties that were left when the last stage ended.", news.survivors)
    yield from _one("bytes_total", "counter", "Bytes of messages, when the last stage ended.", news.bytes)
    refused = "Connections that were refused, or closed before they had signed in."
    yield from _one("connections_refused_total", "counter", refused, status.refused)


def _study(status: Status) -> str:
    return f'{{study="{_escaped(status.study)}",digest="{status.digest[:16]}"}}'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _one(name: str, kind: str, text: str, value: float) -> Iterator[str]:
    return _family(name, kind, text, {"": value})


def _family(name: str, kind: str, text: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# HELP unspoken_{name} {text}"
    yield f"# TYPE unspoken_{name} {kind}"
    for labels, value in values.items():
        yield f"unspoken_{name}{labels} {value:.15g}"
