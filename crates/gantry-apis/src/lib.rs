//! API profiles: how to call an API, which credentials it takes and how often it may be called.
//!
//! [`Apis`] reads and writes the profiles of a data directory, finds the profile that covers a URL,
//! and counts requests against rate limits. It sends nothing: the tools attach credentials and make
//! requests.

mod apis;
mod normalized_url;
mod profile;
mod rates;

pub use apis::{ApiFile, Apis, ApisError, BrokenProfile, Covering, Saving};
pub use normalized_url::path_words;
pub use profile::{Auth, AuthDraft, ClientStyle, Endpoint, Profile, ProfileDraft, RateLimit};
pub use rates::RateLimited;
