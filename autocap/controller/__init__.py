"""The state machine: samples in, caps out."""

from autocap.controller.controller import Controller

__all__ = ["Controller"]
