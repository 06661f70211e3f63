"""Where records are kept: local or s3, Parquet and JSON lines, with manifests."""
