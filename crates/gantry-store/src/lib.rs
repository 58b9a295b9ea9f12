//! The door to the data directory.
