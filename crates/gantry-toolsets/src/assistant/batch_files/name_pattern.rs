//! Patterns on file names, and new names built from the text that their wildcards matched.

use gantry_tool::ToolError;
use regex::{Regex, RegexBuilder};

/// The highest reference is `$9`.
const MAX_REFERENCES: usize = 9;

/// `NamePattern` matches a whole file name with `*` and `?`.
#[derive(Debug)]
pub(super) struct NamePattern {
    regex: Regex,
    wildcards: usize,
}

/// `NameTemplate` is a new name with `$0` to `$9`.
#[derive(Debug)]
pub(super) struct NameTemplate {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    /// A reference; 0 is the whole name.
    Match(usize),
}

impl NamePattern {
    pub(super) fn parse(pattern: &str) -> Result<NamePattern, ToolError> {
        if pattern.contains('/') {
            return Err(ToolError::input(format!("pattern must not contain a slash: {pattern:?}"))
                .with_hint("pattern is compared with file names only; put the path into directory"));
        }
        let mut source = String::from("^");
        let mut wildcards = 0;
        for character in pattern.chars() {
            match character {
                '*' => source.push_str("(.*)"),
                '?' => source.push_str("(.)"),
                other => source.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
            }
            wildcards += usize::from(matches!(character, '*' | '?'));
        }
        source.push('$');
        let regex = RegexBuilder::new(&source)
            .dot_matches_new_line(true)
            .build()
            .map_err(|err| ToolError::input(format!("invalid pattern {pattern:?}: {err}")))?;
        Ok(NamePattern { regex, wildcards })
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }

    /// Returns the whole name, then the match of each wildcard.
    pub(super) fn captures<'a>(&self, name: &'a str) -> Option<Vec<&'a str>> {
        let captures = self.regex.captures(name)?;
        Some(captures.iter().map(|part| part.map_or("", |part| part.as_str())).collect())
    }
}

impl NameTemplate {
    pub(super) fn parse(template: &str, pattern: &NamePattern) -> Result<NameTemplate, ToolError> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = template.chars();
        while let Some(character) = rest.next() {
            if character != '$' {
                text.push(character);
                continue;
            }
            match rest.next() {
                Some('$') => text.push('$'),
                Some(digit @ '0'..='9') => {
                    let number = digit as usize - '0' as usize;
                    if number > pattern.wildcards {
                        return Err(too_few_wildcards(number, pattern.wildcards));
                    }
                    parts.push(Part::Text(std::mem::take(&mut text)));
                    parts.push(Part::Match(number));
                }
                _ => {
                    return Err(ToolError::input("rename_to has a dollar sign without a digit").with_hint(
                        format!("$1 to ${MAX_REFERENCES} are the wildcards' matches, $$ is a dollar sign"),
                    ));
                }
            }
        }
        parts.push(Part::Text(text));
        Ok(NameTemplate { parts })
    }

    /// Returns the new name of a file with these captures. The caller checks that the name is
    /// valid.
    pub(super) fn fill(&self, captures: &[&str]) -> String {
        let part = |part: &'_ Part| match part {
            Part::Text(text) => text.clone(),
            Part::Match(number) => captures.get(*number).copied().unwrap_or_default().to_owned(),
        };
        self.parts.iter().map(part).collect()
    }
}

fn too_few_wildcards(number: usize, wildcards: usize) -> ToolError {
    let has = match wildcards {
        0 => "no wildcard".to_owned(),
        1 => "only 1 wildcard".to_owned(),
        count => format!("only {count} wildcards"),
    };
    ToolError::input(format!("rename_to uses ${number}, but pattern has {has}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names_and_only_stars_and_question_marks_are_special() {
        for (pattern, name, expected) in [
            ("*.txt", "notes.txt", Some(vec!["notes.txt", "notes"])),
            ("*.txt", ".txt", Some(vec![".txt", ""])),
            ("*.txt", "notes.txt.bak", None),
            ("*.txt", "notes.TXT", None),
            ("*.txt", "notesxtxt", None),
            ("*", "any\nthing", Some(vec!["any\nthing", "any\nthing"])),
            ("?.rs", "a.rs", Some(vec!["a.rs", "a"])),
            ("?.rs", "é.rs", Some(vec!["é.rs", "é"])),
            ("?.rs", ".rs", None),
            ("*.*", "archive.tar.gz", Some(vec!["archive.tar.gz", "archive.tar", "gz"])),
            ("*_??-*.*", "IMG_07-x.jpg", Some(vec!["IMG_07-x.jpg", "IMG", "0", "7", "x", "jpg"])),
            ("[a]{b}+(c)^$|\\.txt", "[a]{b}+(c)^$|\\.txt", Some(vec!["[a]{b}+(c)^$|\\.txt"])),
            ("[ab].txt", "a.txt", None),
            ("notes", "notes", Some(vec!["notes"])),
        ] {
            let parsed = NamePattern::parse(pattern).unwrap();
            assert_eq!(parsed.captures(name), expected, "{pattern} on {name}");
            assert_eq!(parsed.matches(name), expected.is_some(), "{pattern} on {name}");
        }
    }

    #[test]
    fn templates_fill_in_matches_in_order() {
        for (pattern, name, template, expected) in [
            ("*.txt", "notes.txt", "$1.md", "notes.md"),
            ("*-*.txt", "a-b.txt", "$2-$1.txt", "b-a.txt"),
            ("*.txt", "a.txt", "$1-$1-$0", "a-a-a.txt"),
            ("*.txt", "a.txt", "$$1 costs $10", "$1 costs a0"),
            ("?????????*", "123456789x", "$9$8$1", "981"),
            ("*", "$2", "$1", "$2"),
            ("*", "x", "", ""),
        ] {
            let pattern = NamePattern::parse(pattern).unwrap();
            let template = NameTemplate::parse(template, &pattern).unwrap();
            assert_eq!(template.fill(&pattern.captures(name).unwrap()), expected);
        }
    }

    #[test]
    fn unknown_references_and_slashes_are_rejected() {
        let error = |pattern: &str, template: &str| {
            let pattern = NamePattern::parse(pattern).unwrap();
            NameTemplate::parse(template, &pattern).unwrap_err().to_string()
        };
        assert_eq!(error("a.txt", "$1"), "rename_to uses $1, but pattern has no wildcard");
        assert_eq!(error("*.txt", "$1$2"), "rename_to uses $2, but pattern has only 1 wildcard");
        assert_eq!(error("*.*", "$3"), "rename_to uses $3, but pattern has only 2 wildcards");
        for template in ["$", "a$", "$x", "${1}"] {
            assert!(
                error("*", template).starts_with("rename_to has a dollar sign without a digit"),
                "{template}"
            );
        }
        assert!(
            NamePattern::parse("a/*")
                .unwrap_err()
                .to_string()
                .starts_with("pattern must not contain a slash")
        );
    }
}
