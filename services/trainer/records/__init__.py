"""What is written down of a step: figures, files, metrics, MLflow."""
