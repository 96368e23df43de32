"""The configuration: YAML, typed, checked whole before anything starts."""

from palearn.config.loading import load, offsets_fault, parse, read_yaml
from palearn.config.schema import Config, KafkaSource, KeyRule, ProcessingTime, Prometheus, Source, Storage
from palearn.config.security import Access

__all__ = [
    "Access",
    "Config",
    "KafkaSource",
    "KeyRule",
    "ProcessingTime",
    "Prometheus",
    "Source",
    "Storage",
    "load",
    "offsets_fault",
    "parse",
    "read_yaml",
]
