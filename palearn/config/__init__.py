"""The configuration: YAML, typed, checked whole before anything starts."""

from palearn.config.access import Access
from palearn.config.reading import load, offsets_fault, parse, read_yaml
from palearn.config.schema import Config, KafkaSource, KeyRule, ProcessingTime, Prometheus, Source

__all__ = [
    "Access",
    "Config",
    "KafkaSource",
    "KeyRule",
    "ProcessingTime",
    "Prometheus",
    "Source",
    "load",
    "offsets_fault",
    "parse",
    "read_yaml",
]
