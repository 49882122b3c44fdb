"""Rows as documents, for MongoDB and Elasticsearch."""
