//! Support for tests of everything that takes a path.
