//! [`LastingApproval`] is an "always" answer: its scope and its duration.

use gantry_protocol::{GrantOffer, GrantReach};

use crate::entry::{ApprovalDecision, GrantScope};
use crate::sessions::now_ms;

/// The duration if neither the answer nor the configuration sets one.
pub const ALWAYS_HOURS: u32 = 24;
pub const MAX_ALWAYS_HOURS: u32 = 24 * 365;
const HOUR_MS: i64 = 3600 * 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastingApproval {
    /// The same arguments when `None`.
    pub scope: Option<GrantScope>,
    /// The configured duration when `None`.
    pub hours: Option<u32>,
    /// This session when `None`.
    pub reach: Option<GrantReach>,
    /// The key of an offer of the question. It sets what the other fields do not set.
    pub offer: Option<String>,
}

impl LastingApproval {
    /// Parses words such as `8h`, `7d`, `any` and the key of an offer, in any order. Returns the other words.
    pub fn parse<'a>(words: impl Iterator<Item = &'a str>) -> (LastingApproval, Vec<&'a str>) {
        let (mut always, mut left) = (LastingApproval::default(), Vec::new());
        for word in words {
            match hours(word) {
                Some(hours) => always.hours = Some(hours),
                None if word == "any" => always.scope = Some(GrantScope::Tool),
                None if is_offer(word) => always.offer = Some(word.to_owned()),
                None => left.push(word),
            }
        }
        (always, left)
    }

    /// Takes what the chosen offer says, unless the answer says otherwise.
    pub(crate) fn with_offer(self, offers: &[GrantOffer]) -> Result<LastingApproval, String> {
        let Some(key) = &self.offer else { return Ok(self) };
        let Some(offer) = offers.iter().find(|offer| offer.key == *key) else {
            let known: Vec<&str> = offers.iter().map(|offer| offer.key.as_str()).collect();
            return Err(match known.as_slice() {
                [] => "the question has no offers; answer yes or no".to_owned(),
                known => format!("unknown offer {key:?}; the question offers {}", known.join(", ")),
            });
        };
        Ok(LastingApproval {
            scope: Some(self.scope.unwrap_or_else(|| offer.scope.clone())),
            hours: Some(self.hours.unwrap_or(offer.hours)),
            reach: Some(self.reach.unwrap_or(offer.reach)),
            offer: None,
        })
    }

    pub(crate) fn answer(self, configured: u32) -> Result<ApprovalDecision, String> {
        let hours = self.hours.unwrap_or(configured);
        if !(1..=MAX_ALWAYS_HOURS).contains(&hours) {
            return Err(format!("\"always\" can last 1 to {MAX_ALWAYS_HOURS} hours, not {hours}"));
        }
        let until = now_ms().saturating_add(i64::from(hours) * HOUR_MS);
        Ok(ApprovalDecision::Always {
            scope: self.scope.unwrap_or(GrantScope::Call),
            until,
            reach: self.reach.unwrap_or_default(),
            grant: None,
        })
    }
}

/// Offers have small numbers. A question's id is longer.
fn is_offer(word: &str) -> bool {
    word.len() == 1 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses `8h` or `7d`. A question's id is longer, so it cannot be confused with a duration.
fn hours(word: &str) -> Option<u32> {
    let (number, unit) = word.split_at_checked(word.len().checked_sub(1)?)?;
    let is_number = (1..=5).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let hours = match unit {
        "h" => 1,
        "d" => 24,
        _ => return None,
    };
    number.parse::<u32>().ok().filter(|_| is_number)?.checked_mul(hours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_and_duration_are_parsed_from_words() {
        let parse = |text: &'static str| LastingApproval::parse(text.split_whitespace());
        let any = Some(GrantScope::Tool);
        assert_eq!(parse(""), (LastingApproval::default(), vec![]));
        let eight = LastingApproval { scope: any, hours: Some(8), ..LastingApproval::default() };
        assert_eq!(parse("8h any"), (eight, vec![]));
        let second = LastingApproval { offer: Some("2".into()), ..LastingApproval::default() };
        assert_eq!(parse("2 a1b2c3d4"), (second, vec!["a1b2c3d4"]));
        assert_eq!(
            parse("a1b2c3d4 7d"),
            (LastingApproval { hours: Some(168), ..LastingApproval::default() }, vec!["a1b2c3d4"])
        );
        for id in ["1234567d", "h", "d", "é", "-1h", "1.5h", "999999h"] {
            assert_eq!(LastingApproval::parse([id].into_iter()), (LastingApproval::default(), vec![id]));
        }
        let hours = |hours, configured| match (LastingApproval { hours, ..LastingApproval::default() })
            .answer(configured)
        {
            Ok(ApprovalDecision::Always { until, .. }) => Some((until - now_ms() + HOUR_MS / 2) / HOUR_MS),
            _ => None,
        };
        assert_eq!((hours(None, 5), hours(Some(8), 5)), (Some(5), Some(8)));
        assert_eq!((hours(Some(0), 5), hours(Some(MAX_ALWAYS_HOURS + 1), 5)), (None, None));
    }
}
