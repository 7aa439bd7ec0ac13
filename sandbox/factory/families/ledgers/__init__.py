"""Accounts, invoices and sheets."""
