"""Whether a job can start, asked before Spark does: all that stands in the way at once, and nothing is written.

Spark takes ten seconds to start, and waits minutes for what is not there.
"""

import os
import pwd
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from palearn.config import Config, KafkaSource
from palearn.errors import ConfigError, PalearnError, StreamError
from palearn.kafka import cluster, reachability
from palearn.spark import checkpoint as checkpoints
from palearn.spark.checkpoint import Ends
from palearn.spark.release import require_java, require_release
from palearn.tables import object_stores
from palearn.tables.folder import Folder
from palearn.tables.locks import locked


def faults(config: Config) -> list[PalearnError]:
    """Return what keeps a stream from starting, in the order of its importance."""
    object_stores.use(config.storage.variables())
    return list(_faults(config))


def require_ready(config: Config) -> None:
    """Raise the fault that keeps a stream from starting; all of them in one ConfigError, if they are several."""
    raise_all(faults(config))


def raise_all(found: list[PalearnError]) -> None:
    """Raise faults, if there are any."""
    if len(found) == 1:
        raise found[0]
    if found:
        raise ConfigError("\n  ".join(dict.fromkeys(str(fault) for fault in found)))


def _faults(config: Config) -> Iterator[PalearnError]:
    yield from _of(require_release)
    yield from _of(require_java)
    yield from _of(_require_user)
    blocked = False
    for name, path in (("checkpoint", config.checkpoint), ("output.path", config.output.path)):
        for fault in _of(lambda name=name, path=path: _require_writable(name, path)):  # type: ignore[misc]
            blocked = True
            yield fault
    if not blocked:
        yield from _of(lambda: checkpoints.require_pair(config))
        yield from _of(lambda: _require_alone(config))
    if config.source.kafka is None:
        yield ConfigError("a stream learns from source.kafka; files are learned by palearn replay")
    else:
        yield from _of_kafka(config, config.source.kafka)


def _of(check: Callable[[], None]) -> Iterator[PalearnError]:
    try:
        check()
    except PalearnError as fault:
        yield fault


# -- this machine --------------------------------------------------------------------------------------------


def _require_user() -> None:
    """Raise a StreamError if this process's user has no name: Hadoop, inside Spark, does not start then."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise StreamError(
            f"this process's user id, {os.getuid()}, has no name on this machine, and Hadoop, inside Spark, wants one: "
            "start the job as a user that /etc/passwd has (docker run --user NAME), or add a line for this id"
        ) from None


def _require_writable(name: str, path: str) -> None:
    """Raise a ConfigError if nothing can be written in a folder, which need not be there."""
    try:
        folder = Folder(path)
    except PalearnError:
        raise
    except Exception as error:  # pyarrow's, of many kinds
        raise ConfigError(
            f"{name}: {path} is on a file system that cannot be reached here ({error}); give a path on a disk that all "
            "machines share, or a file system of docs/configuration.md"
        ) from None
    if folder.is_store:
        object_stores.require_reachable(folder.path)
    if not folder.is_local:
        return
    root = Path(folder.root)
    if long := next((part for part in root.parts if len(os.fsencode(part)) > 255), None):
        raise ConfigError(f"{name}: {long[:40]}… has more than 255 bytes, the longest name that file systems allow")
    place = root
    try:
        while not place.exists():
            if place.is_symlink():
                raise ConfigError(f"{name}: {place} is a link to {os.readlink(place)}, which is not there")
            place = place.parent
    except OSError as error:
        raise ConfigError(f"{name}: {place} cannot be looked at: {error.strerror}") from None
    for each in {place, *(folder for folder in (root,) if folder.exists())}:
        _require_open(name, each)


def _require_open(name: str, place: Path) -> None:
    if not place.is_dir():
        raise ConfigError(f"{name}: {place} is a file, not a folder")
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        raise ConfigError(f"{name}: {place} is on a file system that is mounted read-only; name another place")
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(
            f"{name}: {_user()} may not write in {place} (its owner is {_owner(place)}): give the permission, or name "
            "another place"
        )


def _user() -> str:
    try:
        return f"the user {pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"the user id {os.getuid()}"


def _owner(place: Path) -> str:
    try:
        return place.owner()
    except KeyError:
        return f"user id {place.stat().st_uid}"


def _require_alone(config: Config) -> None:
    """Raise a ConfigError if another job runs on the folders; only where one has ever run, as nothing is made here."""
    for folder, parts in ((Folder(config.checkpoint), ()), (Folder(config.output.path), ("_palearn",))):
        if folder.is_local and folder.has(*parts, "palearn.lock"):
            with locked(folder, *parts):
                pass


# -- Kafka -------------------------------------------------------------------------------------------------------


def _of_kafka(config: Config, kafka: KafkaSource) -> Iterator[PalearnError]:
    found = yield from _topics(kafka)
    if found is not None:
        yield from map(StreamError, _offset_faults(config, kafka, found))


def _topics(kafka: KafkaSource) -> Generator[PalearnError, None, cluster.Topics | None]:
    """Yield what is wrong with the brokers and the topics; return the topics, if they could be asked for."""
    if kafka.java_access:  # only Java understands it
        return None
    silent = list(_of(lambda: reachability.require(kafka.bootstrap_servers, kafka.access)))
    silent = silent or list(_of(lambda: reachability.require_advertised(kafka.bootstrap_servers, kafka.access)))
    yield from silent
    if silent:
        return None
    try:
        found = cluster.topics_of(kafka)
    except PalearnError as fault:
        yield fault
        return None
    missing = cluster.missing_topics(kafka, found)
    yield from map(StreamError, missing)
    return None if missing else found


def _offset_faults(config: Config, kafka: KafkaSource, found: cluster.Topics) -> list[str]:
    """Compare where the stream would begin with what the topics have."""
    folder = Folder(config.checkpoint)
    if checkpoints.has_begun(folder):
        return list(_history_faults(config, kafka, found, folder))
    if any(name.lower().startswith("starting") for name in kafka.options):
        return []
    given = cluster.given_offsets(kafka.starting_offsets)
    return [] if given is None else cluster.offset_faults("source.kafka.starting_offsets", given, found)


def _history_faults(config: Config, kafka: KafkaSource, found: cluster.Topics, folder: Folder) -> Iterator[str]:
    """Yield why a stream cannot go on where its checkpoint stopped."""
    done = checkpoints.planned(folder)
    back = {topic: ends for topic, ends in checkpoints.left_topics(folder).items() if topic not in done}
    for topic in sorted(filter(kafka.takes, back)):
        ends = ", ".join(f"partition {part} up to {end}" for part, end in sorted(back[topic].items()))
        yield (
            f"source.kafka: topic {topic} was left out for a while, and {config.checkpoint} has learned {ends} of it: "
            "Spark would read it from its start, and its records would be learned twice. Leave it out, or begin a new "
            "job with --warm-start and with these offsets in starting_offsets"
        )
    if not kafka.fails_on_data_loss:
        return
    way = (
        "To go on without them give --set source.kafka.options.failOnDataLoss=false (the table batches then counts "
        "them as empty_offsets), or start over"
    )
    for topic in sorted(done.keys() - found.ranges.keys()):
        yield (
            f"source.kafka.topics lacks a topic, {topic}, of which {config.checkpoint} has learned records. Name it "
            "again; or leave it out for good with --set source.kafka.options.failOnDataLoss=false"
        )
    for topic in sorted(done.keys() & found.ranges.keys()):
        for part, end in done[topic].items():
            first = found.ranges[topic].get(part, (0, 0))[0]
            if end < first:
                yield (
                    f"records that the checkpoint has not seen are gone from Kafka, by retention: of {topic}, "
                    f"partition {part}, the offsets {end} to {first - 1}. Nothing is learned twice "
                    f"or skipped silently. {way}"
                )


# -- replays -----------------------------------------------------------------------------------------------------


def require_ready_to_replay(config: Config, *, kafka: bool, start: str, end: str, ends: Ends | None) -> None:
    """Raise what keeps a replay from starting.

    Parameters
    ----------
    kafka
        Whether it reads topics, or writes to some.
    start, end
        The range, as ``palearn replay --from --to`` takes it.
    ends
        Topic and partition -> the offsets at which batches begin and end, where batches are repeated.
    """
    checks: list[Callable[[], None]] = [require_release, require_java, _require_user]
    found = [fault for check in checks for fault in _of(check)]
    found += _of(lambda: _require_writable("output.path", config.output.path))
    if kafka and config.source.kafka is not None:
        found += _of_range(config.source.kafka, start, end, ends)
    raise_all(found)


def _of_range(kafka: KafkaSource, start: str, end: str, ends: Ends | None) -> Iterator[PalearnError]:
    found = yield from _topics(kafka)
    if found is None:
        return
    if ends is not None:
        yield from map(StreamError, _gone(ends, found))
        return
    ranges = {name: cluster.given_offsets(text) for name, text in (("--from", start), ("--to", end))}
    for name, given in ranges.items():
        if given is not None:
            yield from map(StreamError, cluster.offset_faults(name, given, found))
    yield from map(StreamError, cluster.range_faults(*ranges.values()))


def _gone(ends: Ends, found: cluster.Topics) -> Iterator[str]:
    """Yield a sentence for every partition of which records that batches took are not in Kafka any more."""
    for (topic, partition), stops in ends.items():
        first, end = found.ranges.get(topic, {}).get(partition, (0, -1))
        if stops[0] < first or (stops[-1] > end and stops[-1] > stops[0]):
            yield (
                f"the batches took the offsets {stops[0]} to {stops[-1]} of {topic}, partition {partition}, and Kafka "
                f"has {first} to {end}: the batches cannot be repeated"
            )
