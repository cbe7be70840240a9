"""Calls of spillway.step that other ranks take part in: how all of them agree (docs/recovery.md)."""
