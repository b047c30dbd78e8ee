"""Packages of others that bring methods or protocols: the text of a method, a study by it, what errors must say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from unspoken.summation.registry import PROTOCOLS

TOY = '''\
from typing import ClassVar
from pydantic import Field
from unspoken.methods.functions import FunctionOptions
from unspoken.methods.moments import Moments

class Options(FunctionOptions):
    flavour: str = Field("plain", description="a flavour, in quotes")

class Toy(Moments):
    """Moments under another name, with a key of its own."""
    name = "toy"
    summary = "a method of another package"
    tasks = ("classification", "regression")
    keys = Options
    template: ClassVar = {"classification": 'flavour = "sweet"             # or any other\\n'}

    def read_options(self):
        return self.study.options("method", Options).model_copy(update={"function": "softmax"})

    @classmethod
    def default_norm(cls, study):
        return 0.5

class NoMethod:
    pass
'''


def of_ours(protocol: str, words: str) -> str:
    """What an error must match: these words, but for protocols of other packages, which have words of their own."""
    is_ours = protocol not in PROTOCOLS or PROTOCOLS[protocol].__module__.startswith("unspoken.")
    return words if is_ours else "."


Install = Callable[..., Path]


def content(method: str = "toy", **keys: Any) -> dict[str, Any]:
    return {
        "study": {"name": "test", "task": "classification"},
        "data": {"features": 4, "classes": 2},
        "parties": {"count": 4, "records": 10},
        "privacy": {"epsilon": 3.0, "delta": 1e-5},
        "method": {"name": method, **keys},
    }
