//! Character sets.

use gantry_page::{decode, decode_within};

#[test]
fn character_set_sources_have_a_precedence() {
    let html = Some("text/html");
    for (bytes, content_type, text) in [
        (&b"plain"[..], None, "plain"),
        // The precedence is: byte-order mark, header, meta tag, guess.
        (b"\xef\xbb\xbf\xc3\xa9", Some("text/html; charset=latin1"), "é"),
        (b"\xff\xfea\0b\0", Some("text/plain; charset=utf-8"), "ab"),
        (b"\xfe\xff\0a\0b", None, "ab"),
        (b"<meta charset=utf-8>\xe9", Some("text/html; charset=ISO-8859-1"), "<meta charset=utf-8>é"),
        (b"<meta charset=koi8-r>\xf0", html, "<meta charset=koi8-r>П"),
        (
            b"<META http-equiv=content-type content='text/html; CharSet = koi8-r'>\xf0",
            html,
            "<META http-equiv=content-type content='text/html; CharSet = koi8-r'>П",
        ),
        (b"<meta charset=\"koi8-r\"/>\xf0", None, "<meta charset=\"koi8-r\"/>П"),
        (
            b"<?xml version='1.0' encoding='iso-8859-2'?>\xb3",
            Some("application/xml"),
            "<?xml version='1.0' encoding='iso-8859-2'?>ł",
        ),
        // It is readable as ASCII, so it cannot be UTF-16.
        (b"<meta charset=utf-16>\xc3\xa9", html, "<meta charset=utf-16>é"),
        // Only markup may declare its own character set.
        (b"<meta charset=koi8-r>\xc3\xa9", Some("text/plain"), "<meta charset=koi8-r>é"),
        ("größe €".as_bytes(), None, "größe €"),
        (b"\x93curly\x94", Some("text/plain; charset=\"Windows-1252\"; x=y"), "“curly”"),
        (b"\xc3\xa9\xff", Some("text/plain; charset=utf-8"), "é\u{fffd}"),
        // A cut inside a character is UTF-8 if the text has another one. Otherwise the byte is its
        // own character.
        (b"\xc3\xa9 caf\xc3", None, "é caf\u{fffd}"),
        (b"un caf\xe9", None, "un café"),
        (b"a", Some("text/plain; charset=no-such-thing"), "a"),
    ] {
        assert_eq!(decode(bytes, content_type), text, "{content_type:?} {}", String::from_utf8_lossy(bytes));
        let within = decode_within(bytes.to_vec(), content_type, 1_000);
        assert_eq!(within, (text.to_owned(), false), "{content_type:?} {}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn conversion_stops_at_the_limit() {
    let latin = Some("text/plain; charset=iso-8859-1");
    for (bytes, content_type) in [
        (vec![0x80; 5_000], latin),
        (vec![0xff; 5_000], Some("text/plain; charset=utf-8")),
        (
            "日本語".repeat(900).encode_utf16().flat_map(u16::to_le_bytes).collect(),
            Some("text/plain; charset=utf-16le"),
        ),
    ] {
        let whole = decode(&bytes, content_type).into_owned();
        let (text, cut) = decode_within(bytes, content_type, 1_000);
        assert!(cut && (900..=1_000).contains(&text.len()) && whole.starts_with(&text), "{content_type:?}");
    }
    assert_eq!(decode_within(vec![b'a'; 5_000], latin, 1_000), ("a".repeat(5_000), false), "the same bytes");
}

#[test]
fn undeclared_character_set_is_guessed() {
    for (label, text) in [
        ("windows-1252", "Die größten Straßen führen über Brücken und Flüsse, sagte die Köchin."),
        ("windows-1251", "Съешь же ещё этих мягких французских булок, да выпей чаю."),
        ("shift_jis", "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。"),
        ("gbk", "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。"),
        ("euc-kr", "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다."),
    ] {
        let encoding = encoding_rs::Encoding::for_label(label.as_bytes()).unwrap();
        let (bytes, _, unmappable) = encoding.encode(text);
        assert!(!unmappable, "{label}");
        assert_eq!(decode(&bytes, Some("text/plain")), text, "{label}");
    }
}

#[test]
fn guess_uses_late_non_ascii_bytes() {
    let mut bytes = "plain words and more of them ".repeat(10_000).into_bytes();
    bytes.extend(b"Die gr\xf6\xdften Stra\xdfen f\xfchren \xfcber Br\xfccken.");
    assert!(decode(&bytes, None).ends_with("Die größten Straßen führen über Brücken."));
}

#[test]
fn meta_tag_counts_only_near_the_start() {
    let page =
        |before: usize| [" ".repeat(before).into_bytes(), b"<meta charset=koi8-r>\xf0".to_vec()].concat();
    assert!(decode(&page(3_000), None).ends_with('П'));
    assert!(!decode(&page(10_000), None).ends_with('П'));
}
