"""`python -m unspoken`: the command line, for where the `unspoken` command is not on the path."""

from unspoken.cli import app

app(prog_name="unspoken")
