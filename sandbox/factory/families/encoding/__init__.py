"""Character sets and binary encodings."""
