//! No text makes the patch engine panic, and a diff it makes applies to give what it was made from.
#![no_main]

use gantry_files::{diff, patch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str, u8)| {
    let (original, other, fuzz) = input;
    let _ = patch::apply(original.as_bytes(), other, fuzz % 3);
    let made = diff::unified(original, other, "f", usize::from(fuzz % 4));
    // Added lines follow the file's endings, so only texts with one kind come back to the byte.
    if original != other && !original.contains('\r') && !other.contains('\r') {
        let patched = patch::apply(original.as_bytes(), &made, 0).expect("our own diff applies");
        assert_eq!(patched.bytes(), other.as_bytes(), "{made}");
    }
});
