"""The checkpoint folder: its owner, its configuration, its warm start, and the offsets of each batch.

Spark's own files are in it, and beside them ``palearn.json``: an id, the parts of the configuration that the state
depends on, the output that belongs to it, the ids of the topics, and the models that it began with, if any
(``start/``, :mod:`palearn.spark.warm_start`).
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa

from palearn.config import Config
from palearn.errors import ConfigError, StreamError
from palearn.tables import object_stores, reading
from palearn.tables.folder import Folder
from palearn.tables.locks import locked
from palearn.tables.schemas import BATCHES
from palearn.tables.store import FORMAT, Store, format_of

KNOWN = "palearn.json"
#: Topic and partition -> offsets, ascending: where it stood before the first batch, and after each.
Ends = dict[tuple[str, int], list[int]]


@contextmanager
def claimed(config: Config) -> Iterator[None]:
    """Tie checkpoint and output to each other, or refuse a pair that do not belong together; keep others out meanwhile.

    Raises
    ------
    ConfigError
        The checkpoint began with another configuration, the output is another checkpoint's, or another job runs
        on the checkpoint.
    """
    checkpoint, output = Folder(config.checkpoint), Folder(config.output.path)
    for folder in (checkpoint, output):
        if folder.is_store:
            object_stores.require_reachable(folder.path)
    _check(config, checkpoint, output)  # before anything is written
    with locked(checkpoint), locked(output, "_palearn"):
        known, fresh = _check(config, checkpoint, output)
        if fresh:
            checkpoint.write(known, KNOWN)
        if not has_begun(checkpoint):
            _clear(checkpoint)
        if not checkpoint.names("commits"):
            number = format_of(output, config.output.format)
            owner = {"checkpoint_id": known["id"], "format": number, "tables": config.output.format}
            output.write(owner, "_palearn", "owner.json")
        yield


def require_pair(config: Config) -> None:
    """Raise a ConfigError if checkpoint and output do not belong to the configuration or to each other."""
    _check(config, Folder(config.checkpoint), Folder(config.output.path))


def _check(config: Config, checkpoint: Folder, output: Folder) -> tuple[dict[str, Any], bool]:
    """Return the content of ``palearn.json``, and whether to write it; raise a ConfigError for another pair."""
    if f"{checkpoint.path}/".startswith(f"{output.path}/"):
        raise ConfigError(
            f"the checkpoint {checkpoint.path} is not beside the output {output.path}, but in it, where all that is "
            "not hidden is a table: give it a folder of its own"
        )
    known = checkpoint.read(KNOWN)
    owner = output.read("_palearn", "owner.json")
    fresh = known is None
    _require_format(config, checkpoint, owner)
    if known is None:
        if checkpoint.names("offsets"):
            raise ConfigError(f"{config.checkpoint} is the checkpoint of another Spark query; choose a new folder")
        if owner is not None or any(name != "_palearn" for name in output.names()):
            raise ConfigError(
                f"{config.output.path} is not empty and {config.checkpoint} is new: its history would be overwritten; "
                "choose a new output, or the checkpoint that wrote it"
            )
        known = {"id": uuid.uuid4().hex, "fingerprint": config.fingerprint, "output": output.path, "topics": {}}
    elif not has_begun(checkpoint) and not has_start(checkpoint):
        # Nothing is learned yet: what was refused further on may be mended in the configuration.
        known, fresh = known | {"fingerprint": config.fingerprint, "topics": {}}, True
    differing = [name for name, part in config.fingerprint.items() if known["fingerprint"].get(name) != part]
    if differing:
        raise ConfigError(
            f"{_sections(differing)} from the checkpoint's ({config.checkpoint}): set the old values, or choose a new "
            "checkpoint and output; palearn stream --warm-start MODELS starts with the learned models, palearn replay "
            "learns a topic's history again"
        )
    if owner is None:
        if checkpoint.names("commits"):
            raise _not_a_pair(config)
    elif owner["checkpoint_id"] != known["id"]:
        raise _not_a_pair(config)
    last, done = Store(output.path).last_batch(), last_commit(checkpoint)
    if last is not None and last > (0 if done is None else done + 1):
        raise ConfigError(
            f"{config.output.path} goes to batch {last}, {config.checkpoint} only to batch {done}: a copy of the "
            "checkpoint went on there. Give that copy, or two new folders"
        )
    if known["output"] != output.path:  # both were moved
        known, fresh = known | {"output": output.path}, True
    return known, fresh


def _require_format(config: Config, checkpoint: Folder, owner: dict[str, Any] | None) -> None:
    """Raise a ConfigError if the output's tables are written in another way than this job would."""
    if owner is not None and owner["format"] > FORMAT:
        raise ConfigError(
            f"{config.output.path} was written by a newer palearn (format {owner['format']}, not {FORMAT}); "
            "upgrade palearn, or choose a new output and a new checkpoint"
        )
    theirs = "parquet" if owner is None else owner.get("tables", "parquet")
    if theirs != config.output.format and checkpoint.names("commits"):
        raise ConfigError(
            f"the tables of {config.output.path} are written as {theirs}, and output.format is {config.output.format}: "
            "restore it, or choose a new output and a new checkpoint (palearn stream --warm-start)"
        )


def _sections(names: list[str]) -> str:
    """Return the beginning of the sentence on sections that differ."""
    if len(names) == 1:
        return f"the section {names[0]} differs"
    return f"the sections {' and '.join(names)} differ"


def has_begun(checkpoint: Folder) -> bool:
    """Whether a first batch is planned; a draft of a plan does not count."""
    return any(name.isdecimal() for name in checkpoint.names("offsets"))


def _clear(checkpoint: Folder) -> None:
    """Remove what a first attempt left that did not get as far as a plan: Spark would not begin beside it."""
    for name in ("offsets", "state", "commits"):
        checkpoint.fs.delete_dir_contents(checkpoint.at(name), missing_dir_ok=True)


def _not_a_pair(config: Config) -> ConfigError:
    return ConfigError(
        f"{config.output.path} was not written by the checkpoint {config.checkpoint}; "
        "give the pair that belongs together, or two new folders"
    )


def require_same_topics(checkpoint: Folder, ids: Mapping[str, str]) -> None:
    """Remember the ids of topics that the checkpoint does not know yet, and compare the others.

    Raises
    ------
    StreamError
        A topic was deleted and made again: the checkpoint's offsets mean nothing in it.
    """
    known = checkpoint.read(KNOWN)
    assert known is not None
    for topic, number in known["topics"].items():
        if ids.get(topic, number) != number:
            raise StreamError(
                f"topic {topic} was deleted and made again since {checkpoint.path} began: the offsets there are not "
                "of this topic. Start over with a new checkpoint and a new output; palearn stream --warm-start MODELS "
                "goes on from what was learned"
            )
    if ids.keys() - known["topics"].keys():
        checkpoint.write(known | {"topics": {**ids, **known["topics"]}}, KNOWN)


def planned(checkpoint: Folder) -> dict[str, dict[int, int]]:
    """Return where the last plan ends: topic -> partition -> offset; nothing, if there is none."""
    plans = [int(name) for name in checkpoint.names("offsets") if name.isdecimal()]
    found = _offsets(checkpoint.lines("offsets", str(max(plans)))) if plans else {}
    return {topic: {int(part): end for part, end in parts.items()} for topic, parts in found.items()}


def left_topics(checkpoint: Folder) -> dict[str, dict[int, int]]:
    """Return the topics that were left out after records of them were taken, and up to where these were."""
    found = (checkpoint.read(KNOWN) or {}).get("left", {})
    return {topic: {int(part): end for part, end in parts.items()} for topic, parts in found.items()}


def note_topics_left(checkpoint: Folder, takes: Callable[[str], bool]) -> None:
    """Remember how far topics were taken that a job has not any more: Spark forgets them, and would begin anew."""
    known = checkpoint.read(KNOWN)
    assert known is not None
    left = {topic: parts for topic, parts in planned(checkpoint).items() if not takes(topic)}
    if left:
        named = {topic: {str(part): end for part, end in parts.items()} for topic, parts in left.items()}
        checkpoint.write(known | {"left": known.get("left", {}) | named}, KNOWN)


def forget_requests(checkpoint: Folder) -> dict[int, dict[str, int]]:
    """Return bucket -> key -> the bucket's record count, of keys that leave the state (:mod:`palearn.spark.forget`)."""
    asked = (checkpoint.read(KNOWN) or {}).get("forget", {})
    return {int(number): keys for number, keys in asked.items()}


def batch_rows(output: Folder, up_to: int | None = None) -> dict[int, list[dict[str, Any]] | None]:
    """Return the offsets that each batch of an output took, as its table of batches has them; {}: there is none."""
    taken = pa.schema([BATCHES.field("offsets"), ("batch_id", pa.int64())])
    table = reading.columns(output.path, "batches", taken)
    rows = dict(zip(table["batch_id"].to_pylist(), table["offsets"].to_pylist(), strict=True))
    return {number: offsets for number, offsets in rows.items() if up_to is None or number <= up_to}


def batch_offsets(checkpoint: Folder, batch_id: int) -> list[dict[str, Any]]:
    """Return the offsets that a batch takes, as the checkpoint planned them: a row a topic's partition.

    Spark forgets the plans of old batches; the batches table keeps these rows.
    """
    ends = _offsets(checkpoint.lines("offsets", str(batch_id)))
    if batch_id:
        starts = _offsets(checkpoint.lines("offsets", str(batch_id - 1)))
    else:
        starts = _offsets(checkpoint.lines("sources", "0", "0"))
    return [
        {"topic": topic, "partition": int(part), "start": starts.get(topic, {}).get(part, 0), "end": end}
        for topic, parts in ends.items()
        for part, end in parts.items()
    ]


def _offsets(lines: list[str]) -> dict[str, dict[str, int]]:
    """Return topic -> partition -> offset of one of Spark's files; the last line is the only source's."""
    found: dict[str, dict[str, int]] = msgspec.json.decode(lines[-1]) if lines else {}
    return found


def batches_of(path: str) -> list[list[dict[str, Any]]]:
    """Return what every batch of a checkpoint took (:func:`batch_offsets`), in order.

    Raises
    ------
    ConfigError
        There is no checkpoint of a streaming job, or its output has no table of batches.
    """
    checkpoint = Folder(path)
    known = known_of(checkpoint)
    if has_start(checkpoint):
        raise ConfigError(
            f"the job of {path} began with the models of {known['warm_start']}, not with nothing: its batches alone do "
            "not give its models again"
        )
    output = Folder(known["output"])
    rows = batch_rows(output)
    if not rows:
        raise ConfigError(
            f"{output.path}, the output of {path}, has no table batches, which has what each batch took; was "
            "output.batches false, or the folder moved?"
        )
    done = last_commit(checkpoint)
    found = [rows.get(number) for number in range(max([*rows, -1 if done is None else done]) + 1)]
    if None in found:
        raise ConfigError(
            f"the table batches of {output.path} does not tell what batch {found.index(None)} took, so the batches of "
            f"{path} cannot be repeated; was output.batches false for a while?"
        )
    return found  # type: ignore[return-value]


def known_of(checkpoint: Folder) -> dict[str, Any]:
    """Return the content of a checkpoint's ``palearn.json``, or raise a ConfigError if it is none of ours."""
    known: dict[str, Any] | None = checkpoint.read(KNOWN)
    if known is None:
        raise ConfigError(
            f"{checkpoint.path} is not the checkpoint of a streaming job; give the folder that its configuration calls "
            "checkpoint"
        )
    return known


def last_commit(checkpoint: Folder) -> int | None:
    """Return the number of the last batch that Spark has committed."""
    return max((int(name) for name in checkpoint.names("commits") if name.isdecimal()), default=None)


def has_start(checkpoint: Folder) -> bool:
    """Whether the job of a checkpoint begins with models."""
    return checkpoint.has("start", "done.json")


def start_of(checkpoint: Folder, bucket: int) -> bytes | None:
    """Return the models that a bucket begins with; None: it begins empty."""
    return checkpoint.read_bytes("start", f"{bucket}.paln")


def has_whole_start(checkpoint: Folder) -> bool:
    """Whether all models that the job of a checkpoint began with are there; what was not all written is none."""
    done = checkpoint.read("start", "done.json")
    return done is not None and len(started(checkpoint)) == done["files"]


def started(checkpoint: Folder) -> list[int]:
    """Return the buckets that begin with models."""
    return [int(name.removesuffix(".paln")) for name in checkpoint.names("start") if name.endswith(".paln")]
