//! The query language of Drive, as far as tests need it: comparisons joined by `and`, `or`, `not` and parentheses.

use super::File;

#[derive(Debug)]
pub(super) enum Query {
    All,
    And(Box<Query>, Box<Query>),
    Or(Box<Query>, Box<Query>),
    Not(Box<Query>),
    InParents(String),
    SharedWithMe,
    Compare { field: String, operator: String, value: String },
}

impl Query {
    pub(super) fn matches(&self, file: &File) -> bool {
        match self {
            Query::All => true,
            Query::And(one, other) => one.matches(file) && other.matches(file),
            Query::Or(one, other) => one.matches(file) || other.matches(file),
            Query::Not(inner) => !inner.matches(file),
            Query::InParents(id) => file.parents.contains(id),
            Query::SharedWithMe => false,
            Query::Compare { field, operator, value } => {
                let content = String::from_utf8_lossy(&file.content).into_owned();
                let actual = match field.as_str() {
                    "name" => file.name.clone(),
                    "mimeType" => file.mime_type.clone(),
                    "fullText" => format!("{} {content}", file.name),
                    "trashed" => file.trashed.to_string(),
                    "modifiedTime" => "2026-11-10T08:00:00".to_owned(),
                    _ => return false,
                };
                match operator.as_str() {
                    "=" => actual == *value,
                    "!=" => actual != *value,
                    "<" | "<=" => actual < *value,
                    ">" | ">=" => actual > *value,
                    _ => actual.to_lowercase().contains(&value.to_lowercase()),
                }
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Sign(String),
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        if c.is_whitespace() {
            chars.next();
        } else if c == '\'' {
            chars.next();
            let mut inside = String::new();
            loop {
                match chars.next() {
                    Some('\\') => {
                        inside.push(chars.next().filter(|c| matches!(c, '\'' | '\\')).ok_or("a bad escape")?)
                    }
                    Some('\'') => break,
                    Some(c) => inside.push(c),
                    None => return Err("an open quote".to_owned()),
                }
            }
            tokens.push(Token::Text(inside));
        } else if "()".contains(c) {
            chars.next();
            tokens.push(Token::Sign(c.to_string()));
        } else if "=!<>".contains(c) {
            let mut sign = String::new();
            while let Some(&c) = chars.peek().filter(|c| "=!<>".contains(**c)) {
                sign.push(c);
                chars.next();
            }
            tokens.push(Token::Sign(sign));
        } else {
            let mut word = String::new();
            while let Some(&c) = chars.peek().filter(|c| c.is_alphanumeric() || **c == '_') {
                word.push(c);
                chars.next();
            }
            if word.is_empty() {
                return Err(format!("the character {c:?}"));
            }
            tokens.push(Token::Word(word));
        }
    }
    Ok(tokens)
}

pub(super) fn parse(text: &str) -> Result<Query, String> {
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok(Query::All);
    }
    let mut at = 0;
    let query = any(&tokens, &mut at)?;
    if at < tokens.len() { Err(format!("unexpected {:?}", tokens[at])) } else { Ok(query) }
}

fn is_word(tokens: &[Token], at: usize, word: &str) -> bool {
    tokens.get(at) == Some(&Token::Word(word.to_owned()))
}

fn any(tokens: &[Token], at: &mut usize) -> Result<Query, String> {
    let mut query = all(tokens, at)?;
    while is_word(tokens, *at, "or") {
        *at += 1;
        query = Query::Or(Box::new(query), Box::new(all(tokens, at)?));
    }
    Ok(query)
}

fn all(tokens: &[Token], at: &mut usize) -> Result<Query, String> {
    let mut query = one(tokens, at)?;
    while is_word(tokens, *at, "and") {
        *at += 1;
        query = Query::And(Box::new(query), Box::new(one(tokens, at)?));
    }
    Ok(query)
}

fn one(tokens: &[Token], at: &mut usize) -> Result<Query, String> {
    let token = tokens.get(*at).cloned().ok_or("an incomplete query")?;
    *at += 1;
    match token {
        Token::Sign(sign) if sign == "(" => {
            let query = any(tokens, at)?;
            if tokens.get(*at) != Some(&Token::Sign(")".to_owned())) {
                return Err("an open parenthesis".to_owned());
            }
            *at += 1;
            Ok(query)
        }
        Token::Word(word) if word == "not" => Ok(Query::Not(Box::new(one(tokens, at)?))),
        Token::Word(word) if word == "sharedWithMe" => Ok(Query::SharedWithMe),
        Token::Text(id) if is_word(tokens, *at, "in") && is_word(tokens, *at + 1, "parents") => {
            *at += 2;
            Ok(Query::InParents(id))
        }
        Token::Word(field)
            if ["name", "mimeType", "fullText", "trashed", "modifiedTime", "starred"]
                .contains(&field.as_str()) =>
        {
            let operator = match tokens.get(*at) {
                Some(Token::Sign(sign)) if sign != "(" && sign != ")" => sign.clone(),
                Some(Token::Word(word)) if word == "contains" => word.clone(),
                other => return Err(format!("no operator: {other:?}")),
            };
            *at += 1;
            let value = match tokens.get(*at) {
                Some(Token::Text(text)) => text.clone(),
                Some(Token::Word(word)) if word == "true" || word == "false" => word.clone(),
                other => return Err(format!("no value: {other:?}")),
            };
            *at += 1;
            Ok(Query::Compare { field, operator, value })
        }
        other => Err(format!("unexpected {other:?}")),
    }
}
