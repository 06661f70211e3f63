"""Records of a step: figures, files, metrics, MLflow."""
