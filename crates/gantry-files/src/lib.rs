//! The door to files.
