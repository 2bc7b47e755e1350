"""A receiver that answers as Marquez 0.51.1 does, for tests.

``Backend`` is the server without a network: it takes events and keeps what Marquez would keep.
``Receiver`` is the same behind HTTP on loopback, with its read side, and with faults on request.
``python -m tests.support.marquez`` is a receiver in a process of its own.
"""

from __future__ import annotations

from tests.support.marquez.backend import Backend
from tests.support.marquez.receiver import Arrival, Fault, Receiver, Request, arrivals_in, receiver

__all__ = ["Arrival", "Backend", "Fault", "Receiver", "Request", "arrivals_in", "receiver"]
