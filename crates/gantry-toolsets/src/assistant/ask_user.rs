//! `ask_user` asks the person that the agent works for.

use std::sync::Arc;

use gantry_tool::{Label, Text, Tool, ToolError, Toolset, UserQuestion};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::Native;

type Ctx = gantry_tool::Ctx<Native>;

const MAX_QUESTIONS: usize = 10;
const MAX_CHARS: usize = 2_000;
/// The answer when no person can be asked; the seed document fixes this text.
const NOT_AVAILABLE: &str = "Interactive input not available";

/// Ask the user instead of guessing a preference or a decision. Give options when the possible
/// answers are few; omit them for open questions. Put several questions into `questions`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The question, or the heading above `questions`.
    question: Option<String>,
    /// 2 to 5 clear, distinct answers to choose from. The user may still answer otherwise.
    options: Option<Vec<String>>,
    /// Several questions at once; at most 10.
    questions: Option<Vec<Tab>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Tab {
    /// The question.
    question: String,
    /// A short title, one or two words.
    header: Option<String>,
    /// 2 to 5 answers to choose from.
    options: Option<Vec<String>>,
}

pub(super) const NAME: &str = "ask_user";

pub(crate) fn tool(native: &Arc<Native>) -> Tool {
    // Answers are private: an untrusted page may have prompted the agent to ask.
    Tool::new(NAME, Toolset::Assistant, native, run)
        .read_only()
        .labels(&[Label::Private])
        .works_without_machine()
        .without_owner_data()
        .offered_to_agents()
        .collects()
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    let questions = questions(input)?;
    let Some(asker) = &ctx.call.asker else { return Ok(Text(NOT_AVAILABLE.to_owned())) };
    let answers = tokio::select! {
        answers = asker.ask(questions.clone()) => answers,
        () = ctx.call.cancel.cancelled() => return Err(ToolError::Cancelled),
    };
    let Some(answers) = answers else { return Err(ToolError::failed("the user gave no answer")) };
    Ok(Text(match questions.as_slice() {
        [_] => answers.join("\n"),
        several => {
            let lines =
                several.iter().zip(&answers).map(|(asked, answer)| format!("{}: {answer}", asked.question));
            lines.collect::<Vec<_>>().join("\n")
        }
    }))
}

/// Returns the questions to ask, or an error if the fields contradict each other.
fn questions(input: Input) -> Result<Vec<UserQuestion>, ToolError> {
    let asked = match (input.question, input.options, input.questions) {
        (_, Some(_), Some(_)) => {
            return Err(ToolError::input("with questions, give options inside each question"));
        }
        (mut heading, None, Some(tabs)) => tabs
            .into_iter()
            .map(|tab| UserQuestion {
                question: tab.question,
                heading: heading.take(),
                header: tab.header,
                options: tab.options.unwrap_or_default(),
            })
            .collect(),
        (Some(question), options, None) => {
            vec![UserQuestion { question, heading: None, header: None, options: options.unwrap_or_default() }]
        }
        (None, _, None) => return Err(ToolError::input("give question or questions")),
    };
    if asked.is_empty() || asked.len() > MAX_QUESTIONS {
        return Err(ToolError::input(format!("questions must have 1 to {MAX_QUESTIONS} items")));
    }
    for one in &asked {
        let texts = std::iter::once(&one.question).chain(&one.heading).chain(&one.header).chain(&one.options);
        if texts.into_iter().any(|text| text.trim().is_empty() || text.chars().count() > MAX_CHARS) {
            return Err(ToolError::input(format!(
                "each question and option must have 1 to {MAX_CHARS} characters"
            )));
        }
        if !one.options.is_empty() && !(2..=5).contains(&one.options.len()) {
            return Err(ToolError::input(
                "options must have 2 to 5 items; leave it out for an open question",
            ));
        }
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use gantry_tool::testing::call_as;
    use gantry_tool::{Call, Label, Principal, Surface, UserAsker};
    use serde_json::{Value, json};

    use crate::testing::Bench;

    async fn check(input: Value, answers: Option<Vec<&str>>) -> Result<Value, Value> {
        let bench = Bench::new();
        let answers = answers.map(|answers| answers.into_iter().map(str::to_owned).collect::<Vec<_>>());
        let mut call = Call::new(Principal::Operator, Surface::Agent, "/".into());
        call.asker = Some(UserAsker::new(move |_| std::future::ready(answers.clone())));
        call_as(&bench.gate, call, "ask_user", input).await
    }

    #[tokio::test]
    async fn single_answer_is_returned_bare_and_several_with_their_questions() {
        let one = json!({"question": "Deploy?", "options": ["Yes", "No"]});
        assert_eq!(check(one.clone(), Some(vec!["Yes"])).await, Ok(json!("Yes")));
        let two = json!({"questions": [{"question": "Where?"}, {"question": "When?", "options": ["now", "later"]}]});
        assert_eq!(check(two, Some(vec!["here", "now"])).await, Ok(json!("Where?: here\nWhen?: now")));
        assert_eq!(check(one, None).await, Err(json!("the user gave no answer")));
    }

    #[tokio::test]
    async fn question_is_the_heading_of_questions() {
        let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let bench = Bench::new();
        let mut call = Call::new(Principal::Operator, Surface::Agent, "/".into());
        let seen = asked.clone();
        call.asker = Some(UserAsker::new(move |questions| {
            *seen.lock().unwrap() = questions;
            std::future::ready(Some(vec!["here".to_owned(), "now".to_owned()]))
        }));
        let input = json!({"question": "About the deploy", "questions": [{"question": "Where?"}, {"question": "When?"}]});
        call_as(&bench.gate, call, "ask_user", input).await.unwrap();
        let headings: Vec<_> =
            asked.lock().unwrap().iter().map(|one| (one.heading.clone(), one.question.clone())).collect();
        assert_eq!(
            headings,
            [(Some("About the deploy".into()), "Where?".to_owned()), (None, "When?".to_owned())]
        );
        let blank = json!({"question": " ", "questions": [{"question": "Where?"}]});
        assert!(check(blank, Some(vec!["here"])).await.is_err());
    }

    /// An untrusted page may have prompted the agent to ask.
    #[tokio::test]
    async fn answers_are_private() {
        let bench = Bench::new();
        let mut call = Call::new(Principal::Operator, Surface::Agent, "/".into());
        call.asker = Some(UserAsker::new(|_| std::future::ready(Some(vec!["hunter2".to_owned()]))));
        let outcome = bench.gate.dispatch(call, "ask_user", json!({"question": "The password?"})).await;
        assert_eq!(outcome.labels, [Label::Private]);
    }

    #[tokio::test]
    async fn contradicting_fields_are_rejected_and_a_missing_user_is_reported() {
        for wrong in [
            json!({}),
            json!({"question": "x", "options": ["only"]}),
            json!({"question": " "}),
            json!({"questions": []}),
            json!({"question": "x", "options": ["a", "b"], "questions": [{"question": "y"}]}),
        ] {
            assert!(check(wrong.clone(), Some(vec!["a"])).await.is_err(), "{wrong}");
        }
        let alone = Bench::new().call("ask_user", json!({"question": "Deploy?"})).await;
        assert_eq!(alone, Ok(json!("Interactive input not available")));
    }
}
