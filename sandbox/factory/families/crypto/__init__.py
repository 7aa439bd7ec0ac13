"""Checksums, signatures and encodings."""
