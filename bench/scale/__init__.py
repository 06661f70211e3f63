"""How far the work scales: workers, a pipeline that is up to date, traces through one Redis."""
