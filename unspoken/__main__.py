"""`python -m unspoken`: the command line, for where the `unspoken` command is not on the path."""

from unspoken.cli import app

# Processes that a command starts import this module under another name.
if __name__ == "__main__":
    app(prog_name="unspoken")
