"""Reads and writes files on disk and S3: folders, Parquet, JSON lines, manifests. Knows no record type."""
