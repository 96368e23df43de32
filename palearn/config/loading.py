"""A configuration from YAML: expanded, overridden and checked whole before anything starts.

Every fault is collected and told at once, with its path; an unknown key names the nearest right one.
``${NAME}`` in a text is replaced by the environment variable, ``${file:PATH}`` by the file's content; ``--set
learners.0.C=0.5`` overrides a value.
"""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import yaml

from palearn.config import short_forms
from palearn.config.schema import Config, KafkaSource, KeyRule, learner_of
from palearn.config.section import Section
from palearn.config.source_options import source_faults
from palearn.config.topic_formats import form_faults, topic_faults
from palearn.errors import ConfigError, LearnerError
from palearn.learners import TASKS
from palearn.models.single import check_views


def load(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read, expand, override and check a configuration file.

    Parameters
    ----------
    path
        A YAML file.
    overrides
        Texts such as ``learners.0.C=0.5``; the value is YAML.

    Raises
    ------
    ConfigError
        With every fault found, one a line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the configuration {path} is no UTF-8 text (byte {error.start})") from None
    return parse(read_yaml(text, str(path)), overrides, where=str(path))


class _Loader(yaml.SafeLoader):
    """YAML 1.2's numbers: 1e-3 is one; YAML 1.1 takes it for text. And its keys: none stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; PyYAML would keep the last of two equal keys without a word."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} stands twice", key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)$"),
    list("-+.0123456789"),
)


def read_yaml(text: str, where: str) -> Any:
    """Return the content of a YAML text.

    Raises
    ------
    ConfigError
        It is no YAML; ``where`` is named, the text is not repeated.
    """
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = f" (line {place.line + 1}, column {place.column + 1})" if place else ""
        raise ConfigError(f"{where} is not YAML{line}: {getattr(error, 'problem', None) or 'unreadable'}") from None
    finally:
        loader.dispose()


def parse(tree: Any, overrides: Sequence[str] = (), *, where: str = "configuration") -> Config:
    """Check a configuration given as mappings and lists; see :func:`load`."""
    if not isinstance(tree, dict):
        raise ConfigError(f"{where}: expected a mapping with source, learners, output and checkpoint")
    for override in overrides:
        _override(tree, override)
    short_forms.write_out(tree)
    faults: list[str] = []
    tree = _expand(tree, "", faults)
    _fields(tree, Config, "", faults)
    of_learners: list[str] = []
    _learner_faults(tree, of_learners)
    if faults:
        faults += of_learners
    else:
        try:
            config = msgspec.convert(tree, Config)
        except msgspec.ValidationError as error:
            faults.append(_sentence(error))
        else:
            faults += [*of_learners, *_check(config, learners=not of_learners)]
            if not faults:
                return config
    raise ConfigError(f"{where}: " + "\n  ".join(faults))


def _learner_faults(tree: dict[str, Any], faults: list[str]) -> None:
    """Collect what is wrong with each learner's options and names."""
    items, records = tree.get("learners"), tree.get("records") or {}
    task = records.get("task", "binary") if isinstance(records, dict) else "binary"
    if not isinstance(items, list) or task not in TASKS:
        return
    names: list[str] = []
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        try:
            name = learner_of(item, task).name
        except LearnerError as error:
            faults += [f"learners.{i}: {fault}" for fault in _option_faults(item, task) or [str(error)]]
            continue
        if name in names:
            faults.append(f"learners.{i}.name: {name!r} stands twice; tables tell learners apart by name")
        names.append(name)


def _option_faults(item: dict[str, Any], task: str) -> list[str]:
    """Return what is wrong with a learner's options, each looked at alone; none, if only together they are."""
    found = []
    for name, value in item.items():
        if name not in ("algorithm", "name"):
            try:
                learner_of({"algorithm": item.get("algorithm"), name: value}, task)
            except LearnerError as error:
                found.append(str(error))
    return list(dict.fromkeys(found))


def _check(config: Config, *, learners: bool) -> list[str]:
    """Return what no single field's type can say; ``learners``: of learners too, which are sound."""
    faults: list[str] = []
    if (config.source.kafka is None) == (config.source.files is None):
        faults.append("source: give kafka or files, one of the two")
    if config.source.kafka is not None:
        faults += _kafka_faults(config.source.kafka)
    elif config.output.topics:
        faults.append(f"output.{next(iter(config.output.topics))}.kafka: there is no source.kafka to say which cluster")
    faults += [f"storage.{fault}" for fault in config.storage.faults()]
    for table, topic in config.output.topics.items():
        if config.source.kafka is not None and config.source.kafka.takes(topic):
            faults.append(
                f"output.{table}.kafka: {topic!r} is a topic that the job reads: it would read what it writes, "
                "for ever; name another topic"
            )
    return faults + _record_faults(config) + _view_faults(config, sound=learners)


def _kafka_faults(kafka: KafkaSource) -> list[str]:
    faults = [f"starting_offsets: {fault}" for fault in [offsets_fault(kafka.starting_offsets)] if fault]
    faults += source_faults(kafka)
    if kafka.access is not None:
        faults += [f"access.{fault}" for fault in kafka.access.faults()]
    return [f"source.kafka.{fault}" for fault in faults]


def _record_faults(config: Config) -> list[str]:
    records, kafka = config.records, config.source.kafka
    faults = []
    if isinstance(records.key, KeyRule):
        faults += [f"key{fault}" for fault in records.key.faults()]
    if records.positive is not None and records.task != "binary":
        faults.append(f"positive is for the binary task, records.task is {records.task}")
    form = records.format, records.schema, records.message
    faults += form_faults(*form)
    for topic, own in records.topics.items():
        faults += [f"topics.{topic}.{fault}" for fault in topic_faults(own, *form)]
        if kafka is not None and not kafka.takes(topic):
            faults.append(f"topics.{topic}: source.kafka.topics has no such topic")
    return [f"records.{fault}" for fault in faults]


def _view_faults(config: Config, *, sound: bool) -> list[str]:
    """Return what is wrong with views, and with topics and, if they are ``sound``, learners that name them."""
    views, faults = list(config.records.views or ()), []
    try:
        check_views(views)
    except LearnerError as error:
        faults.append(f"records.views: {error}")
    learners = config.make_learners() if sound else []
    named = {f"records.topics.{topic}": own.view for topic, own in config.records.topics.items()}
    named |= {f"learners.{i}": learner.view for i, learner in enumerate(learners)}
    faults += [
        f"{place}.view: {view!r} is none of records.views {views}"
        for place, view in named.items()
        if view is not None and view not in views
    ]
    for i, learner in enumerate(learners):
        if learner.row.views and len(views) < 2:
            faults.append(f"learners.{i}: {learner.algorithm} needs two views or more; set records.views: [A, B]")
        if learner.params.get("as_printed") and learner.row.views and len(views) > 2:
            faults.append(f"learners.{i}: as_printed is the paper's algorithm for two views; set records.views: [A, B]")
    return faults


def offsets_fault(text: str) -> str | None:
    """Return what is wrong with a place in topics, as Spark takes it; None: nothing."""
    if text.lower() in ("earliest", "latest"):
        return None
    try:
        msgspec.json.decode(text, type=dict[str, dict[str, int]])
    except msgspec.DecodeError:
        return f'give earliest, latest, or an offset a partition, such as {{"topic": {{"0": 42}}}}; got {text!r:.80}'
    return None


#: ``${NAME}`` of the environment, or ``${file:PATH}``.
_VARIABLE = re.compile(r"\$\{(?:file:([^}]+)|(\w+))\}")


def _expand(node: Any, path: str, faults: list[str]) -> Any:
    if isinstance(node, dict):
        return {key: _expand(item, f"{path}.{key}".lstrip("."), faults) for key, item in node.items()}
    if isinstance(node, list):
        return [_expand(item, f"{path}.{i}", faults) for i, item in enumerate(node)]
    if not isinstance(node, str):
        return node

    if "${" in _VARIABLE.sub("", node):
        faults.append(f"{path}: ${{ begins a variable, ${{NAME}} or ${{file:PATH}}, and this is neither")

    def content(found: re.Match[str]) -> str:
        file, name = found.groups()
        try:
            return _variable(name) if file is None else _content(file)
        except ConfigError as error:
            faults.append(f"{path}: {error}")
            return ""

    return _VARIABLE.sub(content, node)


def _variable(name: str) -> str:
    try:
        text = os.environ[name]
        text.encode()
    except KeyError:
        raise ConfigError(f"the environment variable {name} is not set") from None
    except UnicodeEncodeError:
        raise ConfigError(f"the environment variable {name} is no UTF-8 text") from None
    return text


def _content(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"the file {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the file {file} is no UTF-8 text") from None


def _override(tree: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise ConfigError("--set takes PATH=VALUE, such as learners.0.C=0.5")
    value = read_yaml(text, f"--set {path}")
    for name, leaf in _leaves(path, value):
        if _SECRET.search(name) and not _VARIABLE.search(str(leaf)):
            raise ConfigError(
                f"--set {name}: every user of this machine can read a command line; give '${{NAME}}' (an environment "
                "variable) or '${file:PATH}', in single quotes, or set it in the configuration file"
            )
    *parents, last = path.split(".")
    node: Any = tree
    try:
        for step in parents:
            node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
        node[int(last) if isinstance(node, list) else last] = value
    except ValueError:
        raise ConfigError(f"--set {path}: a list is addressed by numbers from 0") from None
    except IndexError:
        raise ConfigError(f"--set {path}: the list ends at {len(node) - 1}; items are numbered from 0") from None
    except (AttributeError, TypeError):
        raise ConfigError(f"--set {path}: a part of this path is a value, it holds nothing") from None


#: Values that open something; Kafka's own options are among them.
_SECRET = re.compile(r"^(source|storage)\..*(password|secret|jaas|token|keystore\.key)")


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and the content of every value in a value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}", item)
    else:
        yield path, value


#: Keys of configurations, under the names that they had before, and their names now.
_RENAMED = {"assembly": "join", "max_waiting": "max_pending", "every": "every_batches", "accounts": "batches"}


def _nearest(key: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)


def _fields(node: dict[str, Any], kind: Any, path: str, faults: list[str]) -> None:
    """Collect every unknown key below ``node``, with the nearest known one, and every value of a wrong type."""
    for struct in _structs(kind):
        known = get_type_hints(struct, include_extras=True)
        for key, item in node.items():
            here = f"{path}.{key}".lstrip(".")
            if key not in known:
                near = [_RENAMED[key]] if _RENAMED.get(key) in known else _nearest(str(key), known)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known) or 'none'}"
                faults.append(f"{here}: unknown key {key!r}; {hint}")
            elif isinstance(item, dict) and _structs(known[key]):
                _fields(item, known[key], here, faults)
            elif isinstance(item, dict) and (named := _named_structs(known[key])):
                for name, section in item.items():
                    if isinstance(section, dict):
                        _fields(section, named[0], f"{here}.{name}", faults)
            else:
                try:
                    msgspec.convert(item, known[key])
                except msgspec.ValidationError as error:
                    faults.append(f"{here}: {_sentence(error, known[key])}")


#: What msgspec calls types, and YAML's writers do not.
_WORDS = {
    "array": "a list",
    "object": "a mapping",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


def _sentence(error: msgspec.ValidationError, kind: Any = None) -> str:
    """Return msgspec's sentence in words, without the value, which may be a secret; ``kind`` is what is allowed."""
    choices = _choices(kind)
    if choices[:1] == ["false"]:
        choices.insert(1, "{}")  # what switches a table on
    allowed = " or ".join(choices) or "the values allowed"
    text = re.sub(r"Invalid enum value .*?(?= - at `|$)", f"expected {allowed}", str(error), flags=re.DOTALL)
    text = text.replace(" - at `$.", " - at `").replace(" - at `$", " - at `")
    text = re.sub(
        r"^Object missing required field `(\w+)`(?: - at `([^`]+)`)?$",
        lambda found: f"{'.'.join(filter(None, found.group(2, 1)))} is missing",
        text,
    )
    text = re.sub(r"`str` matching regex .*?'$", "an interval such as 10s or 5 minutes", text)
    text = re.sub(r"`([^`]*)`", lambda found: _words(found[1]), text)
    return text[:1].lower() + text[1:]


def _words(types: str) -> str:
    """Return a type of msgspec's in words; a path as it is."""
    return " or ".join(_WORDS.get(part, part) for part in types.split(" | "))


def _choices(kind: Any) -> list[str]:
    """Return what a value may be: the texts of a Literal, and the fields of a section."""
    if get_origin(kind) is Literal:
        return ["false" if value is False else str(value) for value in get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, Section):
        return [f"{{{', '.join(kind.__struct_fields__)}: …}}"]
    return [text for part in get_args(kind) for text in _choices(part)]


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    """Return the sections that a value of a type may be; those in a mapping or list are not the value itself."""
    if isinstance(kind, type):
        return [kind] if issubclass(kind, msgspec.Struct) else []
    if get_origin(kind) in (dict, list):
        return []
    return [struct for part in get_args(kind) for struct in _structs(part)]


def _named_structs(kind: Any) -> list[type[msgspec.Struct]]:
    """Return the sections that a mapping of names to sections has as its values."""
    if get_origin(kind) is dict:
        return _structs(get_args(kind)[1])
    return [struct for part in get_args(kind) for struct in _named_structs(part)]
