"""Generated from proto/rookery/v1 by `make proto`; never edited by hand."""
