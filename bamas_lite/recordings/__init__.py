"""Recordings of real calls: what was answered once is kept, is never paid twice, and can be replayed by anyone."""

from bamas_lite.recordings.chat import CachedChat
from bamas_lite.recordings.files import export_ledger, export_recording, load_ledger
from bamas_lite.recordings.jobs import SpendCapReached
from bamas_lite.recordings.miss import RecordingMiss
from bamas_lite.recordings.store import RecordingError

__all__ = ["CachedChat", "RecordingError", "RecordingMiss", "SpendCapReached", "export_ledger", "export_recording",
           "load_ledger"]
