"""The study: the agreement before any data is touched. A TOML file, read and checked, with errors explained."""

from unspoken.study.description import Description, Template
from unspoken.study.explaining import StudyError
from unspoken.study.reading import make_study, read_study
from unspoken.study.sections import (
    DEFAULT_PROTOCOL,
    LARGEST_COUNT,
    LARGEST_NORM,
    Category,
    Column,
    DataSection,
    Section,
    SummationSection,
    Task,
)
from unspoken.study.study import Study

__all__ = [
    "DEFAULT_PROTOCOL",
    "LARGEST_COUNT",
    "LARGEST_NORM",
    "Category",
    "Column",
    "DataSection",
    "Description",
    "Section",
    "Study",
    "StudyError",
    "SummationSection",
    "Task",
    "Template",
    "make_study",
    "read_study",
]
