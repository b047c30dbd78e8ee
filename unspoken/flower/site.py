"""A site's file: with which study, key, records and ledger its SuperNode takes part. Only the SuperNode's own
configuration can name this file.

It is read with every question, so that another study needs no restart. Its paths are relative to its own folder.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from pydantic import Field

from unspoken.study import Study, read_study
from unspoken.study.explaining import StudyError, checked
from unspoken.study.section import Section


class Site(Section):
    """What a site takes part with: a party with data, a helper without."""

    study: str = Field(description='the path of the site\'s own copy of the study, such as "heart.toml"')
    digest: str | None = Field(
        None,
        pattern="^[0-9a-f]{16,64}$",
        description="16 or more of the hexadecimal digits that `unspoken roster` and `unspoken plan` show of the study",
    )
    data: str | None = Field(None, description="the path of the records; a helper has none")
    home: str | None = Field(None, description="the folder for keys, states, ledger and consents")
    keys: str | None = Field(None, description="the path of the .secret file, if not the one in home")
    output: str | None = Field(None, description="the folder for the model and the certificate")
    ledger: str | None = Field(None, description="the path of the ledger, if not ledger.sqlite in home")
    dataset: str | None = Field(None, description="the name of the data set in the ledger")
    policy: str | None = Field(None, description="the path of a policy, if not policy.toml in home")
    yes: bool = Field(False, description="true or false (true: take part without a policy)")
    source: str = Field("the site's file", exclude=True)

    def path(self, name: str | None) -> Path | None:
        """A path of the file, from its folder on."""
        return None if name is None else Path(self.source).parent / Path(name).expanduser()

    def read_study(self) -> Study:
        """The site's own copy of the study; refused if it is not the one that was agreed to."""
        study = read_study(Path(self.source).parent / Path(self.study).expanduser())
        if self.digest is not None and not study.digest().startswith(self.digest):
            raise StudyError(
                f"{self.source}: digest is {self.digest}, but {study.source} has {study.digest()[: len(self.digest)]}; "
                "it was changed since it was agreed to, or never was."
            )
        return study

    def settle(self) -> None:
        """Have keys, states, ledger and consents where the file says."""
        if (folder := self.path(self.home)) is not None:
            os.environ["UNSPOKEN_HOME"] = str(folder)


def read_site(path: Path) -> Site:
    """Read and check a site's file; one sentence if something is wrong with it."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise StudyError(f"{path}: cannot be read ({error.strerror}); --node-config names it.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StudyError(f"{path}: is not valid TOML ({error}); correct it at that place or just before.") from None
    if "source" in found:
        raise StudyError(f"{path}: source is an unknown key; remove it.")
    return checked(Site, {**found, "source": str(path)}, str(path))
