//! Spells times as [`Timestamp`] does, in a tenth of the work when several fall into the same second.

use jiff::Timestamp;

/// The second that was spelled last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock {
    second: Option<i64>,
    /// A whole time, of which all up to the fraction is kept.
    text: String,
    /// Where the fraction begins.
    fraction: usize,
}

impl Clock {
    pub(crate) fn spell(&mut self, at: Timestamp) -> &str {
        let second = at.as_second();
        if self.second != Some(second) {
            let whole = Timestamp::from_second(second).unwrap_or(at).to_string();
            self.fraction = whole.len() - 1;
            (self.second, self.text) = (Some(second), whole);
        }
        // Before 1970 seconds and fractions are counted back.
        let Ok(nanoseconds) = u32::try_from(at.subsec_nanosecond()) else {
            (self.second, self.text) = (None, at.to_string());
            return &self.text;
        };
        self.text.truncate(self.fraction);
        if nanoseconds > 0 {
            let mut number = itoa::Buffer::new();
            let digits = number.format(nanoseconds);
            self.text.push('.');
            self.text.extend(std::iter::repeat_n('0', 9 - digits.len()));
            self.text.push_str(digits.trim_end_matches('0'));
        }
        self.text.push('Z');
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spelled_as_everywhere_else() {
        let mut clock = Clock::default();
        for nanoseconds in [
            0,
            1,
            1_000_000_000,
            1_500_000_000,
            1_500_000_001,
            1_000_000_010,
            1_763_353_450_123_456_789,
            1_763_353_450_000_000_100,
            1_763_353_450_100_000_000,
            1_763_353_451_000_000_000,
            -1,
            -1_500_000_000,
            7,
        ] {
            let at = Timestamp::from_nanosecond(nanoseconds).unwrap();
            assert_eq!(clock.spell(at), at.to_string());
        }
    }
}
