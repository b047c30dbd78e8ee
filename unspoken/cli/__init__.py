"""The command line: a module for each command, and what they share in `program`.

Heavy imports happen inside the commands, so that help is quick, and after the study is read, so that its mistakes are
reported at once.
"""

from unspoken import interrupts

interrupts.hear()  # first, as the imports below take a while

from unspoken.cli import (  # noqa: E402
    check,
    compare,
    consent,
    degrees,
    demo,
    ledger,
    new,
    plan,
    simulate,
    sites,
    tune,
    verify,
)
from unspoken.cli.program import Command, app  # noqa: E402

__all__ = ["app"]

SITES = (sites.keys, sites.roster, sites.serve, sites.join, sites.assist, consent.consents, verify.verify)
# The order of the help.
COMMANDS = (
    demo.demo,
    new.new,
    plan.plan,
    check.check,
    simulate.simulate,
    compare.compare,
    tune.tune,
    degrees.degrees,
    *SITES,
)
for _command in COMMANDS:
    app.command(cls=Command)(_command)
app.add_typer(ledger.ledger, name="ledger")
