//! [`OwnerCommand`] is a slash command that a domain adds to conversations, such as `/google`.

use futures_util::future::BoxFuture;

/// A command that only the owner can use: at the command line, on the page, and in a chat of two.
pub trait OwnerCommand: Send + Sync {
    /// The word after the slash, in lower case.
    fn name(&self) -> &'static str;

    /// Its line of `/help`: name, arguments and what it does.
    fn help(&self) -> (&'static str, &'static str, &'static str);

    /// Runs the command. Both outcomes are texts for the owner.
    fn run<'a>(&'a self, argument: &'a str) -> BoxFuture<'a, Result<String, String>>;
}
