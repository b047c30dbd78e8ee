"""`python -m tacit`: the command line, for where the `tacit` command is not on the path."""

from tacit.cli import app

app(prog_name="tacit")
