//! Sessions end to end.
