"""A job as a document: its spec is read, checked and written here.

Owns the public names of specs. Must never start Spark or connect to anything.
"""

from jobs.spec.load import check_text, dump_spec, load_spec, parse_spec, spec_digest, to_document
from jobs.spec.model import JobSpec
from jobs.spec.problems import Problem

__all__ = [
    "JobSpec",
    "Problem",
    "check_text",
    "dump_spec",
    "load_spec",
    "parse_spec",
    "spec_digest",
    "to_document",
]
