"""Caches, queues and limits."""
