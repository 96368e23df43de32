"""Object stores: one description of how to reach one, and what pyarrow, deltalake and Hadoop's s3a call it.

What all three read is the AWS environment. A configuration's ``storage`` section is put there (:func:`use`), for this
process and for the workers, and everything else asks here.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from palearn.errors import ConfigError, StreamError

#: Names of the environment, by what they say; the first one that is set is taken.
_NAMES = {
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "access_key_id": ("AWS_ACCESS_KEY_ID",),
    "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
}
_ALLOW_HTTP = "AWS_ALLOW_HTTP"
#: Schemes of stores that nobody has tested palearn with.
_UNTESTED = {
    "gs": "Google Cloud Storage", "gcs": "Google Cloud Storage", "abfs": "Azure", "abfss": "Azure", "az": "Azure",
    "adl": "Azure", "wasb": "Azure", "wasbs": "Azure",
}  # fmt: skip
#: A store on this machine may be asked without TLS.
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CONNECT_S, _REQUEST_S, _ATTEMPTS = 5, 60, 4


def is_store(path: str) -> bool:
    """Whether a path is in an object store, where a file is there when its upload ends, and nothing is renamed."""
    return path.startswith(("s3://", "s3a://"))


def known_uri(path: str) -> str:
    """Return a URI as it is called here, ``s3://BUCKET/…``.

    Raises
    ------
    ConfigError
        It is of a store that palearn does not know.
    """
    scheme, separator, rest = path.partition("://")
    if separator and scheme in _UNTESTED:
        raise ConfigError(
            f"{path}: {_UNTESTED[scheme]} is not supported, as palearn was never tested with it; S3, or a store "
            "that speaks S3 (s3://…), HDFS or a mounted folder is"
        )
    if scheme == "s3a":
        path = f"s3://{rest}"
    if is_store(path) and not rest.strip("/").partition("/")[2]:
        raise ConfigError(
            f"{path} is a whole bucket: give a folder in it, such as s3://{rest.strip('/') or 'BUCKET'}/job"
        )
    return path.rstrip("/") if separator else path


def settings(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what the environment says of the store: ``endpoint``, ``region`` and keys, those that are set."""
    given = os.environ if environment is None else environment
    found = {what: next((given[name] for name in names if given.get(name)), "") for what, names in _NAMES.items()}
    return {what: value for what, value in found.items() if value}


def variables(given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the variables of the environment that say what a configuration's ``storage`` says."""
    return {(_NAMES | {"allow_http": (_ALLOW_HTTP,)})[what][0]: value for what, value in given.items() if value}


def use(given: Mapping[str, str]) -> None:
    """Let this process reach stores as :func:`variables` say."""
    os.environ.update(given)


def require_tls() -> None:
    """Raise a ConfigError if keys and data would go over a network as they are, and nobody has allowed that."""
    endpoint = settings().get("endpoint", "")
    parts = urlsplit(endpoint)
    if endpoint and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ConfigError(
            f"the store's endpoint is {endpoint!r:.200}; a URL is wanted, such as https://s3.example.org:9000"
        )
    allowed = os.environ.get(_ALLOW_HTTP, "").lower() in ("1", "true")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and not allowed:
        raise ConfigError(
            f"the store's endpoint {endpoint} is without TLS: records and keys could be read on their way. Give "
            f"https://…, or allow it: storage.allow_http: true, or {_ALLOW_HTTP}=true in the environment"
        )


def filesystem(path: str) -> tuple[pafs.FileSystem, str]:
    """Return pyarrow's file system of an ``s3://`` URI, and the path in it.

    Raises
    ------
    ConfigError
        The endpoint is no URL, or has no TLS.
    """
    require_tls()
    root = path.removeprefix("s3://").rstrip("/")
    given = settings()
    if "region" not in given and "endpoint" not in given:
        with told(path):
            given["region"] = pafs.resolve_s3_region(root.partition("/")[0])
    return _s3(tuple(sorted(given.items()))), root


@lru_cache(maxsize=8)
def _s3(given: tuple[tuple[str, str], ...]) -> pafs.S3FileSystem:
    """Return a client; one a process, as its connections are worth keeping."""
    options: dict[str, str] = dict(given)
    endpoint = urlsplit(options.get("endpoint", ""))
    where = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme} if endpoint.netloc else {}
    keys = {}
    if "access_key_id" in options and "secret_access_key" in options:
        keys = {"access_key": options["access_key_id"], "secret_key": options["secret_access_key"]}
        keys |= {"session_token": options["session_token"]} if "session_token" in options else {}
    return pafs.S3FileSystem(
        region=options.get("region", "us-east-1"),
        allow_delayed_open=True,  # else a small file takes three requests to write, not one
        connect_timeout=_CONNECT_S,
        request_timeout=_REQUEST_S,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        **where,
        **keys,
    )


def delta_options(path: str) -> dict[str, str] | None:
    """Return deltalake's ``storage_options`` for a table; None: the environment and the disk are enough."""
    if not is_store(path):
        return None
    given = settings()
    names = {what: names[-1] for what, names in _NAMES.items()} | {"region": "AWS_REGION"}
    options = {names[what]: value for what, value in given.items()}
    options.setdefault("AWS_REGION", "us-east-1")
    if given.get("endpoint", "").startswith("http://"):
        options[_ALLOW_HTTP] = "true"  # deltalake takes it for a mistake otherwise; require_tls has allowed it
    return options


def hadoop_options() -> dict[str, str]:
    """Return what Hadoop's s3a has to be told, as options of Spark.

    The secrets are in them only where the environment of this process has them: Spark's own Java may have been
    started elsewhere. ``spark.redaction.regex`` hides them in Spark's pages and logs.
    """
    given, prefix = settings(), "spark.hadoop.fs.s3a."
    out = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    if "endpoint" in given:
        out |= {f"{prefix}endpoint": given["endpoint"], f"{prefix}path.style.access": "true"}
    out[f"{prefix}endpoint.region"] = (
        given.get("region", "us-east-1") if "endpoint" in given else given.get("region", "")
    )
    if "access_key_id" in given and "secret_access_key" in given:
        out |= {f"{prefix}access.key": given["access_key_id"], f"{prefix}secret.key": given["secret_access_key"]}
        if "session_token" in given:
            provider = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
            out |= {f"{prefix}session.token": given["session_token"], f"{prefix}aws.credentials.provider": provider}
    return {name: value for name, value in out.items() if value}


def require_reachable(path: str) -> None:
    """Raise a StreamError in a sentence, within seconds, if a folder of a store cannot be looked at."""
    fs, root = filesystem(path)
    with told(path), suppress(FileNotFoundError):  # a folder that is not there yet, in a bucket that is
        fs.get_file_info(pafs.FileSelector(root))


@contextmanager
def told(path: str) -> Iterator[None]:
    """Raise what a store answers as a StreamError of one sentence."""
    try:
        yield
    except OSError as error:
        found = sentence(str(error), path)
        if found is None:
            raise
        raise StreamError(found) from None


def sentence(text: str, path: str = "the store") -> str | None:
    """Return what is wrong, in a sentence, of what pyarrow, deltalake or s3a wrote; None: it is about no store."""
    for pattern, told_as in _KNOWN:
        if re.search(pattern, text):
            return told_as.format(path=path, endpoint=settings().get("endpoint", "AWS"))
    return None


_KEYS = "give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or the section storage"
_KNOWN = (
    (
        r"SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|INVALID_CLIENT_TOKEN",
        f"{{endpoint}} does not know the keys for {{path}}: they are wrong, or another store's; {_KEYS}",
    ),
    (r"NO_SUCH_BUCKET|NoSuchBucket|UnknownStoreException", "{path}: {endpoint} has no such bucket; make it first"),
    (
        r"NoAuthWithAWSException|No AWS Credentials provided|CredentialsNotFound|Unable to load credentials"
        r"|NoAwsCredentials",
        f"there are no keys for {{path}}: {_KEYS}",
    ),
    (
        r"ACCESS_DENIED|AccessDenied|Status Code: 403|403 Forbidden",
        "{endpoint} refuses access to {path}: the keys are wrong, or have no right to read, list and write there",
    ),
    (
        r"NETWORK_CONNECTION|curlCode|[Cc]onnection refused|UnknownHostException|Connect to .* failed|dns error",
        "{endpoint} does not answer for {path}; is the endpoint right (storage.endpoint, AWS_ENDPOINT_URL)?",
    ),
    (r"ExpiredToken|EXPIRED_TOKEN", "the keys for {path} have expired; give new ones, and start again"),
    (
        r"NotImplemented|NOT_IMPLEMENTED|\b501\b",
        "{endpoint} knows no conditional writes (If-None-Match), which {path} needs",
    ),
)
