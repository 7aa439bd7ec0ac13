"""Permissions, secrets and other hygiene."""
