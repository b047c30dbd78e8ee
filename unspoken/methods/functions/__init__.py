"""Functions of all parties' records that are sums over records, one a file.

They are the workloads of `moments`, `cape`, `conv`, `local`, `central` and `none`.
"""

from unspoken.methods.functions.base import Function
from unspoken.methods.functions.custom import Custom, Turns
from unspoken.methods.functions.method import FunctionMethod, function_for
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.functions.polynomial import RecordPolynomials

__all__ = [
    "Custom",
    "Function",
    "FunctionMethod",
    "FunctionOptions",
    "RecordPolynomials",
    "Turns",
    "function_for",
]
