"""The study: the agreement before any data is touched. A TOML file, read and checked, with errors explained."""

from unspoken.study.columns import Category, Column, day_of
from unspoken.study.description import Description, Template
from unspoken.study.explaining import StudyError, plain
from unspoken.study.reading import file_beside, make_study, read_study, sha256_of, study_of
from unspoken.study.section import Section
from unspoken.study.sections import (
    LARGEST_COUNT,
    LARGEST_EPSILON,
    LARGEST_NORM,
    LEAST_EPSILON,
    DataSection,
    Sha256,
    SummationSection,
    Task,
    fingerprint,
)
from unspoken.study.study import Study

__all__ = [
    "LARGEST_COUNT",
    "LARGEST_EPSILON",
    "LARGEST_NORM",
    "LEAST_EPSILON",
    "Category",
    "Column",
    "DataSection",
    "Description",
    "Section",
    "Sha256",
    "Study",
    "StudyError",
    "SummationSection",
    "Task",
    "Template",
    "day_of",
    "file_beside",
    "fingerprint",
    "make_study",
    "plain",
    "read_study",
    "sha256_of",
    "study_of",
]
