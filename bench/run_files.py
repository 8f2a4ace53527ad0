"""Files of measurements, compressed where their name ends in .gz: runs as JSON, times as CSV."""

import csv
import gzip
import json
import pathlib

ENDING = ".json.gz"


def stem(path):
    """The file's name without its ending."""
    return pathlib.Path(path).name.removesuffix(".gz").removesuffix(".json").removesuffix(".csv")


def report_of(path):
    """The report beside a run."""
    return pathlib.Path(path).with_name(stem(path) + ".md")


def text_of(path):
    content = pathlib.Path(path).read_bytes()
    return (gzip.decompress(content) if str(path).endswith(".gz") else content).decode()


def load(path):
    """A run."""
    return json.loads(text_of(path))


def save(path, run):
    """Writes a run: the same bytes for the same run."""
    content = (json.dumps(run, indent=1) + "\n").encode()
    pathlib.Path(path).write_bytes(gzip.compress(content, mtime=0) if str(path).endswith(".gz") else content)


def rows(path):
    """The rows of a CSV file, as dicts."""
    return csv.DictReader(text_of(path).splitlines())
