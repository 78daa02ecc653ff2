"""A Hub repository → Architecture, through huggingface_hub: small metadata files only, never weights, never code.

    config.json ── HEAD: size, commit ── cached at that commit? ── GET ── read_config

The client's own settings are honoured: HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE, HF_TOKEN, HTTPS_PROXY. When the Hub cannot be
reached, a cached copy answers and the output says so. No text of the client and no token ever reaches a message.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from kvcalc.core.errors import (
    GatedError,
    HubUnavailableError,
    InvalidConfigError,
    KvcalcError,
    NotFoundError,
    UnknownModelError,
    nearest,
)
from kvcalc.core.units import MIB, clean, human
from kvcalc.sources.addresses import may_be_asked, shown
from kvcalc.sources.deadline import LateError, within
from kvcalc.sources.files import LARGEST_CONFIG, read_bytes, read_json
from kvcalc.sources.hf.hub_guard import DEADLINE, Stopped, guarded
from kvcalc.sources.waiting import waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.core.architecture import Architecture

_T = TypeVar("_T")

#: Seconds to wait for a connection or a byte.
PATIENCE = 10
#: safetensors indexes of the largest models are a few MiB.
LARGEST_INDEX = 64 * MIB
#: Names listed in an error before "and n more".
MOST_LISTED = 6
#: Seconds before a server's error (HTTP 5xx) is asked about once more.
PAUSE = 1.0

#: A name begins and ends with a letter, a digit or an underscore, and does not end in .git (huggingface_hub, validate_repo_id).
_NAME = r"(?![^/]*\.git(?:/|$))[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_REPO = re.compile(rf"(?=.{{1,96}}$){_NAME}(?:/{_NAME})?", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}", re.ASCII)
_DEFAULT_REVISION = "main"


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file of a repository as it lies in the local cache, and the commit it belongs to."""

    path: Path
    commit: str
    stale: bool = False


def load_repo(repo: str, revision: str | None = None) -> Architecture:
    """The architecture of `org/name` at a branch, tag or commit. Raises Hub errors, InvalidConfigError, UnsupportedArchitectureError."""
    repository = Repository(repo, revision or _DEFAULT_REVISION)
    fetched = repository.fetch("config.json", LARGEST_CONFIG)
    if fetched is None:
        raise repository.without_config()
    raw = read_json(read_bytes(fetched.path, LARGEST_CONFIG), f"{repo}/config.json")

    from kvcalc.core.architecture import Source
    from kvcalc.sources.hf.reader import read_config

    source = Source(file=f"{repo}/config.json", where="Hub", revision=fetched.commit)
    architecture = read_config(raw, model_id=repo, source=source)
    if fetched.stale:
        note = f"the Hub could not be reached: answered from the cached copy of commit {fetched.commit[:12]}"
        architecture = replace(architecture, assumptions=(*architecture.assumptions, note))
    return architecture


def weights_bytes(repo: str, revision: str | None = None) -> int | None:
    """Bytes of the checkpoint's tensors from its safetensors index or its single file's size; None if it has neither."""
    repository = Repository(repo, revision or _DEFAULT_REVISION)
    fetched = repository.fetch("model.safetensors.index.json", LARGEST_INDEX)
    if fetched is None:
        return repository.size_of("model.safetensors")
    return total_of(read_json(read_bytes(fetched.path, LARGEST_INDEX), f"{repo}/model.safetensors.index.json"))


def total_of(index: dict[str, Any]) -> int | None:
    """`metadata.total_size` of a safetensors index, if it is a number of bytes."""
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    return total if isinstance(total, int) and not isinstance(total, bool) and total > 0 else None


class Repository:
    """One repository at one revision, asked through huggingface_hub."""

    def __init__(self, repo: str, revision: str) -> None:
        if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
            raise UnknownModelError(f"'{clean(repo)}' is neither a file nor a Hub repository name", "a repository is written org/name")
        if not _REVISION.fullmatch(revision) or ".." in revision:
            raise UnknownModelError(f"'{clean(revision)}' is not a Hub revision", "a revision is a branch, a tag or a commit")
        self.repo = repo
        self.revision = revision

    def fetch(self, name: str, limit: int) -> Fetched | None:
        """The file in the local cache, fetched if the cache is not current; None if the repository does not have it."""
        client = _client()
        if client.constants.HF_HUB_OFFLINE:
            return self._cached(name) or self._offline(name)
        with waiting(f"asking the Hub for {self.repo}"):
            try:
                return _asked(lambda: self._current(name, limit), limit)
            except _FailedError as failed:
                if failed.status < 500 or self._cached(name) is not None:
                    return self._after(failed, name)
            time.sleep(PAUSE)
            try:
                return _asked(lambda: self._current(name, limit), limit)
            except _FailedError as failed:
                return self._after(failed, name)

    def _current(self, name: str, limit: int) -> Fetched | None:
        """The file as it stands at the revision now: from the cache if it has that commit."""
        found = self._metadata(name)
        if found is None:
            return None
        if found.size is not None and found.size > limit:
            raise InvalidConfigError(f"{self.repo}/{name} has {found.size:,} bytes, and kvcalc reads at most {human(limit)}")
        cached = self._cached(name, found.commit_hash)
        return cached or self._fetched(_client().hf_hub_download(self.repo, name, revision=self.revision, etag_timeout=PATIENCE))

    def size_of(self, name: str) -> int | None:
        """Bytes of a file, without fetching it; None if the repository does not have it or cannot be asked."""
        if _client().constants.HF_HUB_OFFLINE:
            return None
        with waiting(f"asking the Hub for {self.repo}"):
            try:
                found = _asked(lambda: self._metadata(name), LARGEST_CONFIG)
            except _FailedError:
                return None
        return found.size if found is not None else None

    def without_config(self) -> KvcalcError:
        """Why a repository without config.json cannot be read: only GGUF files, an adapter, or neither."""
        names = self._names()
        ggufs = sorted(name for name in names if name.lower().endswith(".gguf") and not name.lower().startswith("mmproj"))
        if "adapter_config.json" in names:
            base = self._adapter_base()
            return NotFoundError(
                f"{self.repo} is an adapter, which has no cache of its own", f"ask for its base model{': ' + base if base else ''}"
            )
        if ggufs:
            endpoint = shown(urlsplit(str(_client().constants.ENDPOINT)))
            return NotFoundError(
                f"{self.repo} has no config.json, only GGUF files: {_listed(ggufs)}",
                f"name one of them: {endpoint}/{self.repo}/resolve/{self.revision}/{ggufs[0]}",
            )
        return NotFoundError(
            f"{self.repo} at {self.revision} has no config.json", "a kvcalc YAML can describe it: `kvcalc models import --help`"
        )

    def _metadata(self, name: str) -> Any:
        client = _client()
        try:
            return client.get_hf_file_metadata(client.hf_hub_url(self.repo, name, revision=self.revision), timeout=PATIENCE)
        except client.errors.EntryNotFoundError:
            return None

    def _cached(self, name: str, commit: str | None = None) -> Fetched | None:
        path = _client().try_to_load_from_cache(self.repo, name, revision=commit or self.revision)
        return self._fetched(path) if isinstance(path, str) else None

    @staticmethod
    def _fetched(path: str) -> Fetched:
        parts = Path(path).parts
        commit = parts[parts.index("snapshots") + 1] if "snapshots" in parts else ""
        return Fetched(Path(path), commit)

    def _offline(self, name: str) -> Fetched | None:
        # A repository of which something is cached, but not this file, may simply not have it.
        if name != "config.json":
            return None
        raise HubUnavailableError(f"{self.repo} is not in the local cache, and the Hub is switched off (offline)", self._instead())

    def _after(self, failed: _FailedError, name: str) -> Fetched | None:
        """What a failed request means: a cached copy where the Hub is only out of reach, else the error for people."""
        errors, failure, status = _client().errors, failed.cause, failed.status
        if isinstance(failure, errors.GatedRepoError) or status == 403:
            raise GatedError(
                f"{self.repo} is gated: its licence must be accepted first",
                f"accept it on the model's page, then set HF_TOKEN or run `hf auth login`{self._catalogue(' (the catalogue has it as {})')}",
            ) from None
        if isinstance(failure, errors.RevisionNotFoundError):
            raise NotFoundError(f"{self.repo} has no revision '{clean(self.revision)}'", "name a branch, a tag or a commit") from None
        if isinstance(failure, errors.RepositoryNotFoundError) or status in (401, 404):
            raise NotFoundError(f"the Hub has no public repository {self.repo}", self._instead(private=True)) from None
        cached = self._cached(name)
        if cached is not None:
            return Fetched(cached.path, cached.commit, stale=True)
        if status == 429:
            raise HubUnavailableError(
                f"the Hub limits the rate of requests (HTTP 429) and {self.repo} is not cached", "wait, or set HF_TOKEN"
            ) from None
        if status:
            raise HubUnavailableError(f"the Hub answered HTTP {status} for {self.repo}, which is not cached", self._instead()) from None
        if isinstance(failure, Stopped):
            raise HubUnavailableError(f"the Hub's answer for {self.repo}/{name} {failure.reason}, and no copy is cached", self._instead())
        if isinstance(failure, OSError) and failure.filename is not None:
            raise HubUnavailableError(
                f"the Hub's cache cannot be written ({clean(failure.strerror).lower()})", "set HF_HOME to a folder that can be written"
            ) from None
        if not isinstance(failure, _transport()):
            raise HubUnavailableError(
                f"the Hub's client could not ask for {self.repo} ({type(failure).__name__})",
                "check HF_ENDPOINT, HF_TOKEN and the proxy settings",
            ) from None
        raise HubUnavailableError(
            f"the Hub could not be reached or its answer for {self.repo} broke off, and no copy is cached", self._instead()
        ) from None

    def _names(self) -> list[str]:
        api = _client().HfApi()
        try:
            info = _asked(lambda: api.model_info(self.repo, revision=self.revision, timeout=PATIENCE), LARGEST_INDEX)
        except _FailedError:
            return []
        return [clean(item.rfilename) for item in info.siblings or []]

    def _adapter_base(self) -> str:
        fetched = self.fetch("adapter_config.json", LARGEST_CONFIG)
        if fetched is None:
            return ""
        base = read_json(read_bytes(fetched.path, LARGEST_CONFIG), "adapter_config.json").get("base_model_name_or_path")
        return clean(base) if isinstance(base, str) else ""

    def _catalogue(self, text: str) -> str:
        from kvcalc.sources.catalogue import by_hub

        known = by_hub(self.repo)
        return text.format(known) if known else ""

    def _instead(self, *, private: bool = False) -> str:
        """What to do without the repository: its catalogue entry, near names, what is cached."""
        from kvcalc.sources.catalogue import ids

        known = self._catalogue("the catalogue has it as {}")
        if known:
            return known
        near = nearest(self.repo.rpartition("/")[2].lower(), ids())
        cached = cached_repos()
        parts = [near] if near else []
        if private:
            parts.append("a private repository needs HF_TOKEN")
        elif cached:
            parts.append("cached: " + _listed(cached))
        return "; ".join(parts) or "see `kvcalc models list`"


def cached_repos() -> list[str]:
    """Model repositories that the local cache holds, without walking through it."""
    folder = Path(str(_client().constants.HF_HUB_CACHE))
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.startswith("models--") and _holds_a_config(entry))
    except OSError:
        return []
    return [clean(name.removeprefix("models--").replace("--", "/")) for name in names]


def _holds_a_config(entry: os.DirEntry[str]) -> bool:
    try:
        return any((snapshot / "config.json").is_file() for snapshot in (Path(entry.path) / "snapshots").iterdir())
    except OSError:
        return False


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _client() -> Any:
    """huggingface_hub, imported only to ask the Hub; it must not report or draw anything by itself.

    Raises HubUnavailableError where the environment holds settings under which it does not even start.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    import logging

    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors

        _ = huggingface_hub.get_session, huggingface_hub.hf_hub_download  # imported when they are named
        is_address = may_be_asked(urlsplit(huggingface_hub.constants.ENDPOINT))
    except ValueError:
        raise HubUnavailableError(
            "the Hub's client does not start: one of the HF_ variables is not what it should be", "check HF_ENDPOINT and the timeouts"
        ) from None
    if not is_address:
        raise HubUnavailableError("HF_ENDPOINT is not the https address of a Hub", "unset it, or write it like https://huggingface.co")
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    return huggingface_hub


def _transport() -> tuple[type[Exception], ...]:
    """What the client raises for a request that broke off on its way: HTTP, transport, files cut off."""
    errors = _client().errors
    httpx_error = errors.HfHubHTTPError.__mro__[1]  # httpx's HTTPError, whichever httpx the client was built on
    return (errors.HfHubHTTPError, httpx_error, errors.FileMetadataError, OSError)


class _FailedError(Exception):
    """A request that the client could not bring to an end; `cause` is what it raised, `status` its HTTP status or 0."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause
        answer = getattr(cause, "response", None)
        self.status = int((cause.status if isinstance(cause, Stopped) else getattr(answer, "status_code", None)) or 0)


def _asked(request: Callable[[], _T], limit: int) -> _T:
    """What the client answers, under the guard. Raises _FailedError for whatever it raises: a library's errors are not promised."""
    client = _client()
    try:
        with guarded(client.get_session(), limit):
            return within(DEADLINE, request)
    except LateError:
        raise _FailedError(Stopped(f"did not arrive within {DEADLINE} seconds")) from None
    except KvcalcError:
        raise
    except Exception as failure:  # noqa: BLE001  proxies, certificates and answers of every kind
        raise _FailedError(failure) from None
