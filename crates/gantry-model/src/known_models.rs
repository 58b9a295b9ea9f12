//! What is known about well-known models: prices, windows, supported features. The configuration
//! overrides it.

use crate::model::{Facts, ThinkingStyle};
use crate::money::{LongPrompt, Price, Rates};
use crate::provider::ProviderKind;

/// When the list below was last compared with the providers' pages.
pub const PRICES_AS_OF: &str = "2026-11-16";

struct Known {
    kind: ProviderKind,
    /// The model's name, or its beginning, which a date may follow.
    id: &'static str,
    facts: Facts,
}

/// Returns the models that a provider offers by default. The usual choices for `deep`, `balanced`
/// and `fast` come first.
pub(crate) fn offered(kind: ProviderKind) -> impl Iterator<Item = &'static str> {
    KNOWN.iter().filter(move |known| known.kind == kind).map(|known| known.id)
}

/// Finds the entry with the longest name that the model's name begins with.
pub(crate) fn facts(kind: ProviderKind, id: &str) -> Option<Facts> {
    let known = KNOWN.iter().filter(|known| known.kind == kind && is_version_of(id, known.id));
    known.max_by_key(|known| known.id.len()).map(|known| known.facts)
}

/// `claude-haiku-4-5-20251001` is a version of `claude-haiku-4-5`; `gpt-5-mini` is not a version of
/// `gpt-5`.
fn is_version_of(id: &str, known: &str) -> bool {
    let rest = id.strip_prefix(known);
    rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-').is_some_and(is_date))
}

fn is_date(text: &str) -> bool {
    text.len() >= 8 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

const fn claude(id: &'static str, thinking: ThinkingStyle, rates: Rates) -> Known {
    Known {
        kind: ProviderKind::Anthropic,
        id,
        facts: Facts {
            price: Some(Price::flat(rates)),
            context_window: 1_000_000,
            max_output: 128_000,
            thinking,
            effort: true,
        },
    }
}

const fn older_claude(id: &'static str, rates: Rates) -> Known {
    Known {
        kind: ProviderKind::Anthropic,
        id,
        facts: Facts {
            price: Some(Price::flat(rates)),
            context_window: 200_000,
            max_output: 64_000,
            thinking: ThinkingStyle::Budget,
            effort: false,
        },
    }
}

const fn gpt(id: &'static str, context_window: u64, max_output: u32, effort: bool, rates: Rates) -> Known {
    Known {
        kind: ProviderKind::Openai,
        id,
        facts: Facts {
            price: Some(Price::flat(rates)),
            context_window,
            max_output,
            thinking: ThinkingStyle::Unsupported,
            effort,
        },
    }
}

/// Long prompts cost twice as much, and their answers half as much again.
const fn newer_gpt(id: &'static str, input: f64, output: f64) -> Known {
    let long = Rates { output: output * 1.5, ..Rates::usual(input * 2.0, 0.0) };
    let price =
        Price { rates: Rates::usual(input, output), long: Some(LongPrompt { above: 272_000, rates: long }) };
    Known {
        kind: ProviderKind::Openai,
        id,
        facts: Facts {
            price: Some(price),
            context_window: 1_050_000,
            max_output: 128_000,
            thinking: ThinkingStyle::Unsupported,
            effort: true,
        },
    }
}

/// For models where writing the cache costs no more than input.
const fn read_at(input: f64, output: f64, cache_read: f64) -> Rates {
    Rates { input, output, cache_read, cache_write: input }
}

const KNOWN: &[Known] = &[
    claude(
        "claude-opus-5-5",
        ThinkingStyle::Always,
        Rates { input: 4.0, output: 20.0, cache_read: 0.2, cache_write: 5.0 },
    ),
    claude("claude-sonnet-5-5", ThinkingStyle::Adaptive, Rates::usual(2.0, 10.0)),
    Known {
        kind: ProviderKind::Anthropic,
        id: "claude-haiku-5-5",
        facts: Facts {
            price: Some(Price {
                rates: Rates::usual(0.1, 0.5),
                long: Some(LongPrompt { above: 100_000, rates: Rates::usual(0.5, 2.5) }),
            }),
            context_window: 1_000_000,
            max_output: 128_000,
            thinking: ThinkingStyle::Adaptive,
            effort: true,
        },
    },
    claude("claude-fable-5-1", ThinkingStyle::Always, Rates::usual(10.0, 50.0)),
    claude("claude-opus-5", ThinkingStyle::Adaptive, Rates::usual(5.0, 25.0)),
    claude("claude-sonnet-5", ThinkingStyle::Adaptive, Rates::usual(2.0, 10.0)),
    claude("claude-opus-4-8", ThinkingStyle::Adaptive, Rates::usual(5.0, 25.0)),
    claude("claude-opus-4-7", ThinkingStyle::Adaptive, Rates::usual(5.0, 25.0)),
    claude("claude-opus-4-6", ThinkingStyle::Adaptive, Rates::usual(5.0, 25.0)),
    claude("claude-sonnet-4-6", ThinkingStyle::Adaptive, Rates::usual(3.0, 15.0)),
    older_claude("claude-opus-4-5", Rates::usual(5.0, 25.0)),
    older_claude("claude-sonnet-4-5", Rates::usual(3.0, 15.0)),
    older_claude("claude-haiku-4-5", Rates::usual(1.0, 5.0)),
    newer_gpt("gpt-6-sol", 2.0, 10.0),
    newer_gpt("gpt-6-luna", 0.1, 0.5),
    gpt("gpt-5.4", 400_000, 128_000, true, read_at(2.5, 15.0, 0.25)),
    gpt("gpt-5.4-mini", 400_000, 128_000, true, read_at(0.75, 4.5, 0.075)),
    gpt("gpt-5", 400_000, 128_000, true, read_at(1.25, 10.0, 0.125)),
    gpt("gpt-5-mini", 400_000, 128_000, true, read_at(0.25, 2.0, 0.025)),
    gpt("gpt-4.1", 1_000_000, 32_768, false, read_at(2.0, 8.0, 0.5)),
    gpt("gpt-4.1-mini", 1_000_000, 32_768, false, read_at(0.4, 1.6, 0.1)),
    gpt("gpt-4o", 128_000, 16_384, false, read_at(2.5, 10.0, 1.25)),
    gpt("gpt-4o-mini", 128_000, 16_384, false, read_at(0.15, 0.6, 0.075)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dated_version_matches_the_model_and_a_sibling_does_not() {
        let input = |kind, id| facts(kind, id).and_then(|facts| facts.price).map(|price| price.rates.input);
        let (anthropic, openai) = (ProviderKind::Anthropic, ProviderKind::Openai);
        assert_eq!(input(anthropic, "claude-haiku-4-5-20251001"), Some(1.0));
        assert_eq!(input(anthropic, "claude-opus-5"), Some(5.0));
        assert_eq!(input(anthropic, "claude-opus-5-5"), Some(4.0));
        assert_eq!(input(openai, "gpt-4o-2024-08-06"), Some(2.5));
        assert_eq!(input(openai, "gpt-5-nano"), None);
        assert_eq!(input(openai, "claude-opus-5"), None);
    }
}
