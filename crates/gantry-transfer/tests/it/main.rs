//! Two desks on two folders, and a wire between them that can be cut and tampered with.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests set up their own world"
)]

mod abandoned;
mod read_only;
mod streams;
mod wire;
