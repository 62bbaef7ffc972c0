"""Storages as objects in a bucket, or in any other place that fsspec opens by URL: ``<url>/<2 hex>/<digest>``.

An object is written before the row that names it, and never changed. Deleting that row keeps the object, because
another process may be about to name it again. `minify gc` removes objects that had no row for a long time.
"""

from __future__ import annotations

from functools import cache

from ..errors import StoreError


class Bucket:
    """A bucket at ``url``, for example ``s3://bucket/fxminify``. Credentials come from the environment."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        self.url = url.rstrip("/")
        try:
            self._files, self._root = url_to_fs(self.url)
            if isinstance(self._files, LocalFileSystem):
                self._files.auto_mkdir = True  # never a bucket: its name may have a typing error
        except Exception as exc:  # a driver may raise anything
            raise self._error(exc) from exc

    def write(self, key: str, data: bytes) -> None:
        """Store ``data``, whole or not at all."""
        path = self._path(key)
        try:
            if not self._files.exists(path):
                with self._files.transaction, self._files.open(path, "wb") as stream:
                    stream.write(data)
        except Exception as exc:
            raise self._error(exc) from exc

    def read(self, key: str, size: int) -> bytes:
        """The object ``key``, which has ``size`` bytes. One that is longer is not read to its end."""
        try:
            with self._files.open(self._path(key), "rb") as stream:
                found: bytes = stream.read(size + 1)
        except FileNotFoundError:
            raise StoreError(f"{self.url} has no object {key[:12]}, which the index names") from None
        except Exception as exc:
            raise self._error(exc) from exc
        return found

    def _path(self, key: str) -> str:
        return f"{self._root}/{key[:2]}/{key}"

    def _error(self, exc: Exception) -> StoreError:
        first = (str(exc).strip().splitlines() or [""])[0]
        return StoreError(
            f"{self.url} cannot be used ({type(exc).__name__}: {first}): check FXMINIFY_BLOBS, its credentials and its "
            "driver (for s3://, pip install 'fxminify[s3]')"
        )


@cache
def bucket(url: str) -> Bucket:
    """The bucket at ``url``. A process opens each once."""
    return Bucket(url)
