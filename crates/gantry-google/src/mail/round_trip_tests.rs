//! Compares messages with Python's `email` package.
