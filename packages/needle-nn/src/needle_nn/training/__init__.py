"""Training: a loop one can read and leave behind, its metrics and its callbacks."""

from needle_nn.training.callbacks import (
    Average,
    Callback,
    EarlyStop,
    MetricsFile,
    Plateau,
    ProfileSteps,
    ProgressBar,
    SaveCheckpoints,
    TensorBoard,
)
from needle_nn.training.carried import Carried
from needle_nn.training.metrics import Accuracy, Mean, accuracy, confusion_matrix, perplexity, top_k_accuracy
from needle_nn.training.trainer import Trainer, fit

__all__ = [
    "Accuracy",
    "Average",
    "Callback",
    "Carried",
    "EarlyStop",
    "Mean",
    "MetricsFile",
    "Plateau",
    "ProfileSteps",
    "ProgressBar",
    "SaveCheckpoints",
    "TensorBoard",
    "Trainer",
    "accuracy",
    "confusion_matrix",
    "fit",
    "perplexity",
    "top_k_accuracy",
]
