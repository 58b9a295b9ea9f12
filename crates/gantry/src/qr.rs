//! Draws QR codes in a terminal.

use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;

/// Returns a QR code of a text as lines of half blocks, or `None` if the text is too long for one.
pub(crate) fn qr_code(text: &str) -> Option<String> {
    let code = QrCode::new(text).ok()?;
    // Terminals are mostly dark, and readers expect dark modules on a light ground.
    let mut renderer = code.render::<Dense1x2>();
    Some(renderer.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).quiet_zone(true).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_square_and_a_long_text_has_none() {
        let drawn = qr_code("gtj_abc").unwrap();
        let lines: Vec<&str> = drawn.lines().collect();
        let width = lines[0].chars().count();
        assert!(lines.iter().all(|line| line.chars().count() == width), "{drawn}");
        // Two rows of modules are one line.
        assert_eq!(width.div_ceil(2), lines.len());
        assert_eq!(qr_code(&"x".repeat(5000)), None);
    }
}
