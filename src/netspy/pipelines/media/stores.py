"""Where files are kept: a folder, or a bucket of S3 or of a store that speaks its language. All calls may block."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from netspy.errors import ConfigError, MissingExtraError
from netspy.pipelines.errors import UnavailableError, text_of
from netspy.pipelines.local.shared_file import locked, sync_folder
from netspy.pipelines.media.keys import check_key

if TYPE_CHECKING:
    from netspy.settings import Settings

_FOLDER, _LOCK = "netspy-files-", ".lock"
_LEFT_OVER_S = 24 * 3600.0  # an incoming file this old belongs to a process that is gone
_LONGEST_PREFIX = 120  # bytes: S3 keys end at 1,024, and ours may have 900
_PART_BYTES = 8 << 20  # of a multipart upload; in memory at a time, for each of the threads that send
_SENDERS = 2
_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
_REFUSED = frozenset(  # people must act: no waiting helps
    {
        *("301", "400", "401", "403"),
        *("AccessDenied", "AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId", "InvalidBucketName"),
        *("InvalidToken", "NoSuchBucket", "PermanentRedirect", "SignatureDoesNotMatch"),
    }
)  # fmt: skip
_UNUSABLE = frozenset({"NoCredentialsError", "PartialCredentialsError", "ParamValidationError"})  # botocore


class FileStore(Protocol):
    """Keeps files by key. Methods raise OSError or UnavailableError when the store is away or full."""

    def open(self) -> None:
        """Make ready. Raises ConfigError."""

    def incoming(self) -> Path:
        """A path for a file that is being downloaded, on the machine's own disk."""

    def size(self, key: str) -> int | None:
        """Bytes of the file under `key`, None when there is none."""

    def keep(self, file: Path, key: str, content_type: str) -> None:
        """Put the file there whole, in the place of one that is there; `file` may be gone then."""

    def read(self, key: str) -> bytes | None:
        """A small file; None when there is none."""

    def write(self, key: str, data: bytes) -> None:
        """A small file."""

    def close(self) -> None:
        """Close connections."""


def store_for(settings: Settings) -> FileStore:
    """The store that FILES_STORE names. Raises ConfigError, and MissingExtraError when its driver isn't there."""
    named = str(settings.FILES_STORE)
    if named.startswith("s3://"):
        # No URL: `#`, `?` and `%` are characters of a prefix like others.
        bucket, _, prefix = named.removeprefix("s3://").partition("/")
        prefix = prefix.strip("/")
        if not bucket:
            raise ConfigError(f"FILES_STORE={named!r} names no bucket; write s3://bucket/prefix")
        if len(prefix.encode("utf-8", "replace")) > _LONGEST_PREFIX:
            raise ConfigError(f"FILES_STORE={named!r}: the prefix has more than {_LONGEST_PREFIX} bytes")
        if find_spec("boto3") is None:
            raise MissingExtraError(f"FILES_STORE={named!r}", "s3")
        return BucketStore(settings, bucket, prefix)
    if "://" in named:
        raise ConfigError(f"FILES_STORE={named!r} is neither a folder nor s3://bucket/prefix")
    return FolderStore(Path(named).expanduser())


class FolderStore:
    """A folder. Files appear under their names when they are whole and on the disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / ".incoming"

    def open(self) -> None:
        """See FileStore.open."""
        self._incoming.mkdir(parents=True, exist_ok=True)
        for entry in self._incoming.iterdir():
            with suppress(OSError):
                if entry.stat().st_mtime < time.time() - _LEFT_OVER_S:
                    entry.unlink()

    def incoming(self) -> Path:
        """See FileStore.incoming. On the store's own file system, so that a rename is enough."""
        self._incoming.mkdir(parents=True, exist_ok=True)  # somebody may have removed it
        return self._incoming / secrets.token_hex(12)

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*key.split("/"))

    def size(self, key: str) -> int | None:
        """See FileStore.size."""
        try:
            return self._path(check_key(key)).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def keep(self, file: Path, key: str, content_type: str) -> None:
        """See FileStore.keep."""
        del content_type  # the ending tells
        path = self._path(check_key(key))
        with file.open("rb") as written:
            os.fsync(written.fileno())
        path.parent.mkdir(parents=True, exist_ok=True)
        root = self._root.resolve()
        if not path.parent.resolve().is_relative_to(root):
            raise OSError(f"{path.parent} leads out of {root}; is a folder in it a link?")
        file.replace(path)
        sync_folder(path.parent)

    def read(self, key: str) -> bytes | None:
        """See FileStore.read."""
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, key: str, data: bytes) -> None:
        """See FileStore.write. Not synced: what a power cut takes of it is downloaded again."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.incoming()
        temporary.write_bytes(data)
        temporary.replace(path)

    def close(self) -> None:
        """See FileStore.close."""


class BucketStore:
    """A bucket, or a prefix in it. Large files go up in parts, from the disk."""

    def __init__(self, settings: Settings, bucket: str, prefix: str) -> None:
        self._settings = settings
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._folder: Path | None = None
        self._own = ExitStack()
        self._making = threading.Lock()
        self._client: Any = None
        self._transfer: Any = None

    def open(self) -> None:
        """See FileStore.open. Asks whether the bucket is there."""
        import boto3
        from boto3.s3.transfer import TransferConfig

        try:
            self._folder = _own_folder(self._own)
            self._transfer = TransferConfig(
                multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, max_concurrency=_SENDERS
            )
            self._client = self._connect(boto3)
            self._call("head_bucket", Bucket=self._bucket)
        except BaseException:
            self.close()
            raise

    def _connect(self, boto3: Any) -> Any:
        """A client. Raises ConfigError for settings that make none."""
        from botocore.exceptions import BotoCoreError

        settings = self._settings
        try:
            return boto3.client(
                "s3",
                endpoint_url=settings.S3_ENDPOINT_URL or None,
                region_name=settings.S3_REGION or None,
                aws_access_key_id=settings.S3_ACCESS_KEY_ID or None,
                aws_secret_access_key=settings.S3_SECRET_ACCESS_KEY or None,
                config=_client_config(),
            )
        except (BotoCoreError, ValueError) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> ConfigError:
        why = " ".join(text_of(error).split())
        return ConfigError(
            f"FILES_STORE=s3://{self._bucket} can't be used ({why}); see the bucket's name, S3_ENDPOINT_URL "
            "(http:// or https://), S3_REGION, S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY"
        )

    def incoming(self) -> Path:
        """See FileStore.incoming."""
        if self._folder is None:
            raise UnavailableError("the store isn't open")
        with self._making:
            if not self._folder.is_dir():  # cleaners of temporary folders remove what is some days old
                self._own.close()
                self._folder = _own_folder(self._own)
            return self._folder / secrets.token_hex(12)

    def size(self, key: str) -> int | None:
        """See FileStore.size."""
        found = self._call("head_object", Bucket=self._bucket, Key=self._prefix + check_key(key))
        return None if found is None else int(found["ContentLength"])

    def keep(self, file: Path, key: str, content_type: str) -> None:
        """See FileStore.keep."""
        self._call(
            "upload_file",
            str(file),
            self._bucket,
            self._prefix + check_key(key),
            ExtraArgs={"ContentType": content_type},
            Config=self._transfer,
        )

    def read(self, key: str) -> bytes | None:
        """See FileStore.read."""
        found = self._call("get_object", Bucket=self._bucket, Key=self._prefix + key)
        if found is None:
            return None
        with found["Body"] as body:
            data: bytes = body.read()
        return data

    def write(self, key: str, data: bytes) -> None:
        """See FileStore.write."""
        self._call("put_object", Bucket=self._bucket, Key=self._prefix + key, Body=data)

    def close(self) -> None:
        """See FileStore.close."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self._folder = None
        self._own.close()

    def _call(self, method: str, *args: Any, **named: Any) -> Any:
        """Call the client; None for what isn't there. Raises UnavailableError."""
        from boto3.exceptions import S3UploadFailedError
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, method)(*args, **named)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _MISSING and method in {"head_object", "get_object"}:
                return None
            if code in _REFUSED or code in _MISSING:
                raise self._refusal(error) from self._unusable(error)
            raise UnavailableError(f"s3://{self._bucket}: {text_of(error)}") from error
        except (BotoCoreError, S3UploadFailedError) as error:
            if type(error).__name__ in _UNUSABLE:
                raise self._refusal(error) from self._unusable(error)
            raise UnavailableError(f"s3://{self._bucket}: {text_of(error)}") from error

    def _refusal(self, error: Exception) -> UnavailableError:
        """Its cause, a ConfigError, keeps the crawl from waiting for the store."""
        return UnavailableError(str(self._unusable(error)))


def _own_folder(until: ExitStack) -> Path:
    """A folder on this machine's disk for files on their way to a bucket; removed when `until` is closed.

    Those of processes that are gone are removed as well: each process holds a lock in its own.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        with suppress(OSError), locked(left / _LOCK, wait_s=0.0, create=False):
            shutil.rmtree(left, ignore_errors=True)
    Path(tempfile.gettempdir()).mkdir(parents=True, exist_ok=True)
    folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix=_FOLDER)))
    until.enter_context(locked(folder / _LOCK))
    return folder


def _client_config() -> Any:
    from botocore.config import Config

    common: dict[str, Any] = {
        "connect_timeout": 5,
        "read_timeout": 60,
        "retries": {"max_attempts": 3, "mode": "standard"},
    }
    try:
        # Other stores than Amazon's often don't know the newer checksums.
        return Config(
            **common,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
    except TypeError:  # a botocore that doesn't know them either
        return Config(**common)
