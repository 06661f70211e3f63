"""What keeps the repository in order: locks, wire code, versions, dashboards."""
