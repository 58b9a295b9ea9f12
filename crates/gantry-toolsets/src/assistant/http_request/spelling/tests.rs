#![allow(clippy::disallowed_methods, reason = "the size of a run comes from the environment")]

use proptest::prelude::*;

use super::*;

/// One way to write a character: the first number chooses it, the others vary it.
fn escaped(character: char, [way, more]: [u8; 2]) -> String {
    let cased = |text: String| if more % 2 == 0 { text } else { text.to_uppercase() };
    let mut units = [0; 2];
    let json = || -> String {
        character
            .encode_utf16(&mut units.clone())
            .iter()
            .map(|unit| format!("\\u{}", cased(format!("{unit:04x}"))))
            .collect()
    };
    let code = u32::from(character);
    let end = if more % 3 == 0 { "" } else { ";" };
    match way % 8 {
        0 => character.to_string().bytes().map(|byte| format!("%{}", cased(format!("{byte:02x}")))).collect(),
        1 => json(),
        2 if character.is_ascii_punctuation() => format!("\\{character}"),
        3 if character == '\n' => "\\n".into(),
        4 => format!("&#{}{code}{end}", "0".repeat(usize::from(more % 4))),
        5 => format!("&#x{}{end}", cased(format!("{code:0width$x}", width = usize::from(more % 5)))),
        6 if character == ' ' => "+".into(),
        7 => match NAMED.iter().find(|(named, _)| *named == character) {
            Some((_, name)) => format!("&{name}{end}"),
            None => character.to_string(),
        },
        _ => {
            units.fill(0);
            character.to_string()
        }
    }
}

/// Escapes each character in its own way, and the characters of its escape in other ways.
fn spelt(value: &str, ways: &[[u8; 2]]) -> String {
    let mut ways = ways.iter().cycle();
    let mut way = || ways.next().copied().unwrap_or_default();
    let mut text = String::new();
    for character in value.chars() {
        let [kind, level] = way();
        match level % 4 {
            0 => text.push(character),
            1 | 2 => text.push_str(&escaped(character, [kind, level / 4])),
            _ => {
                for within in escaped(character, [kind, level / 4]).chars() {
                    match way() {
                        [_, plain] if plain % 2 == 0 => text.push(within),
                        other => text.push_str(&escaped(within, other)),
                    }
                }
            }
        }
    }
    text
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z0-9/+=_.-]{8,40}",
        "[ -~]{8,30}",
        "[\\\\%&+;#\"/ux0-9a]{8,20}",
        "[a-zé€😀ß\n\t /]{8,20}",
    ]
}

fn found(values: &[&str], form: TextForm, text: &str) -> Option<Range<usize>> {
    let values: Vec<Vec<char>> = values.iter().map(|value| value.chars().collect()).collect();
    Finder::new(&values, form).find(text.as_bytes(), 0)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: gantry_testkit::scaled(200_000, 4_000),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_mixture_of_spellings_is_found(value in value(), ways in prop::collection::vec(any::<[u8; 2]>(), 1..60)) {
        let escaped = spelt(&value, &ways);
        // The surrounding characters cannot be read as part of an escape.
        let text = format!("<p>{escaped}<");
        let range = found(&[&value], TextForm::Verbatim, &text);
        prop_assert_eq!(range.clone().map(|range| range.end), Some(text.len() - 1), "{} in {}", value, text);
        prop_assert!(range.is_some_and(|range| range.start <= 3), "{} in {}", value, text);
        let name = text.to_lowercase();
        if value.is_ascii() {
            prop_assert!(found(&[&value], TextForm::Normalized, &name).is_some(), "{} in {}", value, name);
        }
    }

    #[test]
    fn absent_value_is_not_found(value in "[A-Z0-9]{8,20}", text in "[a-zé%&;#ux\\\\ ]{0,300}") {
        prop_assert_eq!(found(&[&value], TextForm::Verbatim, &text), None);
    }

    #[test]
    fn value_without_its_last_character_is_not_found(beginning in "[A-PR-Za-z0-9/+]{7,19}", ways in prop::collection::vec(any::<[u8; 2]>(), 1..60)) {
        // No escape contains a Q. Without it, a digit of an escape could be read as the last
        // character.
        let value = format!("{beginning}Q");
        let text = format!("{}<", spelt(&beginning, &ways));
        prop_assert_eq!(found(&[&value], TextForm::Verbatim, &text), None, "{} in {}", value, text);
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic(value in value(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let values = [value.chars().collect::<Vec<char>>()];
        for form in [TextForm::Verbatim, TextForm::Normalized] {
            let _ = Finder::new(&values, form).find(&bytes, 0);
        }
    }
}

#[test]
fn first_position_and_furthest_end_are_found() {
    assert_eq!(found(&["key-with-end\\"], TextForm::Verbatim, "a key-with-end\\\\ b"), Some(2..16));
    assert_eq!(found(&["first-value", "first-value="], TextForm::Verbatim, "first-value%3d"), Some(0..14));
    assert_eq!(
        found(&["second-value", "first-value"], TextForm::Verbatim, "first-value second-value"),
        Some(0..11)
    );
    assert_eq!(found(&["Some-Value\\x"], TextForm::Normalized, "http://some-value/x"), Some(7..19));
    assert_eq!(found(&["Some-Value"], TextForm::Verbatim, "some-value"), None);
}

#[test]
fn hostile_text_is_searched_in_linear_time() {
    const LENGTH: usize = 100_000;
    let values: Vec<Vec<char>> = ["S3cr3t/Val+ue\"AB", "UzNjcjN0L1ZhbCt1ZSJBQg==", "\\S3&cr%3t\\"]
        .iter()
        .map(|value| value.chars().collect())
        .collect();
    for part in ["\\", "%", "&", "%25", "&amp;", "&#0", "\\u005c", "S3cr3t", "+"] {
        let text = part.repeat(LENGTH / part.len());
        let started = std::time::Instant::now();
        assert_eq!(Finder::new(&values, TextForm::Verbatim).find(text.as_bytes(), 0), None);
        let took = started.elapsed();
        println!("{part:8} {took:?}");
        assert!(took < std::time::Duration::from_secs(20), "{part}: {took:?}");
    }
}
