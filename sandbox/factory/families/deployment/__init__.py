"""Releases, rollbacks and provisioning."""
