//! Reads a command line as a shell would, for grants by prefix.
//!
//! A line is understood only if it is a list of plain commands: words without expansions, joined by `;`, `&&`, `||`, `|` or
//! line breaks. Everything else is not understood, and then no prefix covers the line. The sandbox is what limits a
//! command; this module only decides whether a person is asked.

use brush_parser::ast::{
    AndOr, Command, CommandPrefixOrSuffixItem, CompoundListItem, IoFileRedirectKind, IoFileRedirectTarget,
    IoRedirect, Pipeline, SeparatorOperator, SimpleCommand, Word,
};
use brush_parser::word::{self, WordPiece, WordPieceWithSource};
use brush_parser::{ParserOptions, SourceInfo, Token, TokenizerOptions};

/// Longer lines are not understood.
const MAX_LINE_BYTES: usize = 4_096;
/// The most words of a prefix.
const MAX_PREFIX_WORDS: usize = 8;

/// Texts that start a substitution, wherever they are. They nest, and a shell other than bash may read them even where bash
/// does not.
const NESTING: [&str; 9] = ["`", "$(", "${", "$[", "<(", ">(", "=(", "((", "<<"];

/// Operators between commands, and redirections that [`is_harmless`] checks.
const OPERATORS: [&str; 9] = [";", "&&", "||", "|", "\n", ">", ">>", ">&", "&>"];

/// Words that are not the name of a command where one is expected.
const RESERVED: [&str; 20] = [
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "then", "until", "while",
];

/// Programs that run other programs or code which they are given. A prefix that starts with one would cover everything.
const RUNNERS: [&str; 75] = [
    ".",
    "alias",
    "ansible",
    "awk",
    "ash",
    "at",
    "bash",
    "batch",
    "bind",
    "builtin",
    "bun",
    "busybox",
    "chroot",
    "command",
    "complete",
    "csh",
    "dash",
    "deno",
    "docker",
    "doas",
    "emacs",
    "enable",
    "env",
    "eval",
    "exec",
    "expect",
    "export",
    "find",
    "fish",
    "flock",
    "gawk",
    "gdb",
    "ionice",
    "ksh",
    "let",
    "local",
    "lua",
    "mapfile",
    "mawk",
    "nice",
    "node",
    "nohup",
    "nsenter",
    "osascript",
    "parallel",
    "perl",
    "php",
    "pkexec",
    "podman",
    "python",
    "python2",
    "python3",
    "rbash",
    "readonly",
    "ruby",
    "script",
    "select",
    "set",
    "setsid",
    "sh",
    "shopt",
    "source",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "tclsh",
    "time",
    "timeout",
    "trap",
    "watch",
    "xargs",
    "zsh",
];

/// Programs whose first argument says what they do. Their name alone is not suggested as a prefix.
const WITH_SUBCOMMANDS: [&str; 24] = [
    "apt",
    "apt-get",
    "aws",
    "az",
    "brew",
    "cargo",
    "dnf",
    "gcloud",
    "gh",
    "git",
    "glab",
    "go",
    "helm",
    "kubectl",
    "npm",
    "npx",
    "pip",
    "pip3",
    "pnpm",
    "systemctl",
    "terraform",
    "uv",
    "uvx",
    "yarn",
];

/// Returns the words of every command of a line, or `None` if the line is not understood.
pub(super) fn commands(line: &str) -> Option<Vec<Vec<String>>> {
    let is_plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if line.len() > MAX_LINE_BYTES
        || !line.chars().all(is_plain)
        || NESTING.iter().any(|text| line.contains(text))
    {
        return None;
    }
    let tokens = brush_parser::uncached_tokenize_str(line, &TokenizerOptions::default()).ok()?;
    // The parser recurses into compound commands, so they are refused before it sees them.
    if !tokens.iter().all(is_flat) {
        return None;
    }
    let program =
        brush_parser::parse_tokens(&tokens, &ParserOptions::default(), &SourceInfo::default()).ok()?;
    let mut commands = Vec::new();
    for CompoundListItem(list, separator) in program.complete_commands.iter().flat_map(|list| &list.0) {
        if !matches!(separator, SeparatorOperator::Sequence) {
            return None;
        }
        commands.extend(pipeline(&list.first)?);
        for AndOr::And(next) | AndOr::Or(next) in &list.additional {
            commands.extend(pipeline(next)?);
        }
    }
    Some(commands).filter(|commands| !commands.is_empty())
}

/// Whether a prefix may be granted: some plain words that do not start with a program that runs others.
pub(super) fn is_grantable(prefix: &[String]) -> bool {
    let plain = |word: &String| commands(word).is_some_and(|found| found == [[word.clone()]]);
    let program = prefix.first().map(|word| word.rsplit_once('/').map_or(word.as_str(), |(_, name)| name));
    (1..=MAX_PREFIX_WORDS).contains(&prefix.len())
        && prefix.iter().all(plain)
        && program.is_some_and(|program| !runs_others(program) && !program.is_empty())
}

/// Whether a program runs what its arguments or files say, or changes what later commands mean. A version may follow the
/// name, as in `python3.11`.
fn runs_others(program: &str) -> bool {
    const MORE: [&str; 7] = ["declare", "nodejs", "printf", "pwsh", "taskset", "typeset", "unshare"];
    let name = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    [program, name].iter().any(|name| RUNNERS.contains(name) || MORE.contains(name)) || name.is_empty()
}

/// Suggests the prefix of a command: the program, and its subcommand if it has one.
pub(super) fn suggested(command: &[String]) -> Option<Vec<String>> {
    let is_subcommand = |word: &&String| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    let subcommand = command.get(1).filter(is_subcommand);
    let program = command.first()?;
    if subcommand.is_none() && WITH_SUBCOMMANDS.contains(&program.as_str()) {
        return None;
    }
    let prefix: Vec<String> = std::iter::once(program).chain(subcommand).cloned().collect();
    is_grantable(&prefix).then_some(prefix)
}

fn is_flat(token: &Token) -> bool {
    match token {
        Token::Operator(operator, _) => OPERATORS.contains(&operator.as_str()),
        Token::Word(word, _) => !RESERVED.contains(&word.as_str()),
    }
}

fn pipeline(pipeline: &Pipeline) -> Option<Vec<Vec<String>>> {
    if pipeline.timed.is_some() || pipeline.bang {
        return None;
    }
    let simple = |command: &Command| match command {
        Command::Simple(command) => words(command),
        _ => None,
    };
    pipeline.seq.iter().map(simple).collect()
}

/// Returns the words of a command. Assignments before it, and redirections that reach a file, are not understood.
fn words(command: &SimpleCommand) -> Option<Vec<String>> {
    if command.prefix.is_some() {
        return None;
    }
    let name = command.word_or_name.as_ref().and_then(|name| literal(name, Globs::Refused))?;
    let mut words = vec![name];
    for item in command.suffix.iter().flat_map(|suffix| &suffix.0) {
        match item {
            CommandPrefixOrSuffixItem::Word(word) => words.push(literal(word, Globs::Allowed)?),
            CommandPrefixOrSuffixItem::IoRedirect(redirect) if is_harmless(redirect) => {}
            // `make CC=gcc` is an argument of make, but `export PATH=x` changes later commands.
            CommandPrefixOrSuffixItem::AssignmentWord(_, word) => words.push(literal(word, Globs::Allowed)?),
            CommandPrefixOrSuffixItem::IoRedirect(_) | CommandPrefixOrSuffixItem::ProcessSubstitution(..) => {
                return None;
            }
        }
    }
    Some(words)
}

/// Whether a redirection reaches no file: `2>&1`, and output to `/dev/null`.
fn is_harmless(redirect: &IoRedirect) -> bool {
    let is_null = |word: &Word| word.value == "/dev/null";
    match redirect {
        IoRedirect::File(_, IoFileRedirectKind::Write | IoFileRedirectKind::Append, target) => {
            matches!(target, IoFileRedirectTarget::Filename(word) if is_null(word))
        }
        IoRedirect::File(_, IoFileRedirectKind::DuplicateOutput, target) => match target {
            IoFileRedirectTarget::Fd(_) => true,
            IoFileRedirectTarget::Duplicate(word) => ["1", "2"].contains(&word.value.as_str()),
            _ => false,
        },
        IoRedirect::OutputAndError(word, _) => is_null(word),
        IoRedirect::File(..) | IoRedirect::HereDocument(..) | IoRedirect::HereString(..) => false,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Globs {
    Allowed,
    Refused,
}

/// Returns the text of a word that a shell does not expand. File names may be expanded where globs are allowed.
fn literal(word: &Word, globs: Globs) -> Option<String> {
    let pieces = word::parse(&word.value, &ParserOptions::default()).ok()?;
    let mut text = String::new();
    for WordPieceWithSource { piece, .. } in &pieces {
        text.push_str(&piece_text(piece, globs)?);
    }
    Some(text).filter(|text| !text.is_empty() || word.value.contains(['\'', '"']))
}

fn piece_text(piece: &WordPiece, globs: Globs) -> Option<String> {
    match piece {
        WordPiece::Text(text) => {
            let expands = if globs == Globs::Allowed { "(){}!^=~#" } else { "*?[](){}!^=~#" };
            // `a=b`, `x^` and `f{1,2}` are common arguments that name no command.
            let expands = if globs == Globs::Allowed { "()!" } else { expands };
            (!text.contains(|c| expands.contains(c))).then(|| text.clone())
        }
        WordPiece::SingleQuotedText(text) => Some(text.clone()),
        WordPiece::EscapeSequence(text) => {
            let mut chars = text.chars();
            match (chars.next(), chars.next(), chars.next()) {
                (Some('\\'), Some(c), None) if c != '\n' => Some(c.to_string()),
                _ => None,
            }
        }
        WordPiece::DoubleQuotedSequence(pieces) => {
            let inner = pieces.iter().map(|inner| match &inner.piece {
                WordPiece::Text(text) if !text.contains('!') => Some(text.clone()),
                escape @ WordPiece::EscapeSequence(_) => piece_text(escape, globs),
                _ => None,
            });
            inner.collect()
        }
        WordPiece::TildePrefix(_) if globs == Globs::Allowed => Some("~".to_owned()),
        WordPiece::AnsiCQuotedText(_)
        | WordPiece::GettextDoubleQuotedSequence(_)
        | WordPiece::TildePrefix(_)
        | WordPiece::ParameterExpansion(_)
        | WordPiece::CommandSubstitution(_)
        | WordPiece::BackquotedCommandSubstitution(_)
        | WordPiece::ArithmeticExpression(_) => None,
    }
}

#[cfg(test)]
mod tests;
