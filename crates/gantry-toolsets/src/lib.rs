//! Toolsets.
