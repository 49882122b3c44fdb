"""downloader"""
