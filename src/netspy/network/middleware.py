"""Doorway: `from netspy.network.middleware import DownloaderMiddleware`."""

from netspy.downloader.middleware import DownloaderMiddleware

__all__ = ["DownloaderMiddleware"]
