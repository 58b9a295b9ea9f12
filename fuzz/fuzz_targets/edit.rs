//! An edit changes what it says and nothing else.
#![no_main]

use gantry_files::edit::{Occurrences, edit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &str, &str, bool)| {
    let (bytes, old, new, all) = input;
    let occurrences = if all { Occurrences::All } else { Occurrences::One };
    if let Ok(edited) = edit(bytes, old, new, occurrences) {
        assert!(edited.replacements >= 1 && (all || edited.replacements == 1));
        let written: Vec<u8> = edited.parts.iter().flat_map(|part| part.iter().copied()).collect();
        // Text without carriage returns has one meaning: the plain replacement.
        if let Ok(text) = std::str::from_utf8(bytes)
            && !text.contains('\r')
            && !old.contains('\r')
            && !new.contains('\r')
            && !text.starts_with('\u{feff}')
        {
            let plain = if all { text.replace(old, new) } else { text.replacen(old, new, 1) };
            assert_eq!(plain.as_bytes(), written);
        }
    }
});
