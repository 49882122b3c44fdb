"""A private Redis that a crawl starts and stops itself (REDIS_URL='embedded')."""
