"""A study's status as a page for people: one file of HTML that needs nothing else, and brings itself up to date.

Its script only fetches the same page again and shows it. A browser is told to run and to load nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape

from unspoken.engines.network.status import STAGES, Status, duration

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --quiet: #57606a; --paper: #fff; --card: #f4f6f8; --line: #d5dae0;
  --good: #12703a; --bad: #b3261e; --bar: #2563a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebef; --quiet: #a0a9b4; --paper: #14171b; --card: #1e2329;
  --line: #373e47; --good: #63c98a; --bad: #ff8a80; --bar: #6fb0f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 52rem; padding: 1.5rem 1rem 3rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; }
.quiet { color: var(--quiet); }
.stage { font-size: 1.25rem; font-weight: 600; margin: 1.25rem 0 .5rem; }
.stage.released { color: var(--good); }
.stage.aborted, .lost { color: var(--bad); }
progress { width: 100%; height: .6rem; accent-color: var(--bar); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1rem 0 0; }
dl div { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
dt { color: var(--quiet); font-size: .85rem; }
dd { margin: 0; font-size: 1.1rem; font-variant-numeric: tabular-nums; }
ul { list-style: none; margin: 0; padding: 0; display: grid; gap: .25rem 1rem;
  grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); }
.there::before { content: "● "; color: var(--good); }
.away::before { content: "○ "; color: var(--bad); }
"""
_SCRIPT = """
const again = async () => {
  const lost = document.getElementById("lost");
  try {
    const answer = await fetch(location.href, {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("main").replaceWith(next.querySelector("main"));
    document.title = next.title;
    lost.hidden = true;
  } catch { lost.hidden = false; }
};
setInterval(again, 2000);
"""


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


POLICY = (
    f"default-src 'none'; style-src '{_digest(_STYLE)}'; script-src '{_digest(_SCRIPT)}'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What a browser may do with the page: the Content-Security-Policy header"""


def page(status: Status) -> str:
    """The whole page."""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(status.study)}: {escape(_stage(status))}</title>
<style>{_STYLE}</style>
{_main(status)}
<p id="lost" class="lost" role="status" hidden>The coordinator does not answer any more: this is how things were last.
Its terminal and its files say how the study ended.</p>
<noscript><p class="quiet">Load the page again to see how things are now.</p></noscript>
<script>{_SCRIPT}</script>
</html>
"""


def _main(status: Status) -> str:
    news = status.news
    return f"""<main>
<h1>{escape(status.study)}</h1>
<p class="quiet">Coordinated by {escape(status.coordinator)} · digest {status.digest[:16]}</p>
<p class="stage {news.stage}">{escape(_sentence(status))}</p>
<progress max="{max(1, news.expected)}" value="{news.present}">{news.present} of {news.expected}</progress>
<p>{news.present:,} of {news.expected:,} are connected.</p>
<dl>{_facts(status)}</dl>
<h2>Who takes part</h2>
<ul>{_people(status)}</ul>
<h2>What was promised</h2>
<p>{escape(status.promise)}</p>
</main>"""


def _stage(status: Status) -> str:
    return STAGES.get(status.news.stage, status.news.stage)


def _sentence(status: Status) -> str:
    stage = _stage(status)
    return f"{stage[:1].upper()}{stage[1:]}" + (f": {status.reason}" if status.reason else "")


def _facts(status: Status) -> str:
    news, parties = status.news, sum(each.role == "party" for each in status.participants)
    often = "once" if status.attempts == 1 else f"{status.attempts:,} times"
    facts = {"Round": f"{news.round:,} of {news.rounds:,}"}
    if news.stage not in ("released", "aborted"):
        facts |= {
            "Asked for": status.request,
            "Attempt": f"{news.attempt:,}; parties may send {often}",
            "Time left": duration(news.seconds),
        }
    facts |= {"Parties in it": f"{news.survivors:,} of {parties:,}", "Moved": f"{news.bytes:,} bytes"}
    if news.stage == "waiting":
        facts = {"Rounds": f"{news.rounds:,}", "Time left": duration(news.seconds)}
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in facts.items())


def _people(status: Status) -> str:
    def person(name: str, role: str, is_there: bool) -> str:
        mark, word = ("there", "connected") if is_there else ("away", "not connected")
        kind = ' <span class="quiet">helper</span>' if role == "helper" else ""
        return f'<li class="{mark}" aria-label="{escape(name)}, {role}, {word}">{escape(name)}{kind}</li>'

    return "".join(person(each.name, each.role, each.is_there) for each in status.participants)
