"""Stores records on disk or S3, as Parquet and JSON lines, with manifests."""
