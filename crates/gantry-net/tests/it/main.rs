#![expect(clippy::disallowed_methods, reason = "the servers of these tests listen, and read what they serve")]

mod answers;
mod site;
