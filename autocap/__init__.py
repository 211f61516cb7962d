"""autocap finds the best power cap for a training job while the job runs."""

__version__ = "0.1.0"
