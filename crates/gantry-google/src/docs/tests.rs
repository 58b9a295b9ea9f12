//! Every action through the gate, against the checking server.

use gantry_testkit::google::Fault;
use serde_json::json;

use super::NAME;
use crate::testing::{Bench, Person, outside_fences};

const UPDATE: &str = "docs.documents.batchUpdate";
const MARKDOWN: &str = "# Plan\n\nText with **bold** and [a link](https://example.org).\n\n- one\n  - two\n\n\
    | a | b |\n| --- | --- |\n| c | `d` |\n\n```\ncode\n```\n\nA note[^1].\n\n[^1]: the note\n";

async fn bench() -> Bench {
    Bench::with_scopes(&["documents"]).await
}

async fn read(bench: &Bench, id: &str) -> String {
    bench.unasked(NAME, json!({"action": "read", "document_id": id})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_created_from_markdown_and_read_back() {
    let bench = bench().await;
    let create = json!({"action": "create", "title": "Q4 plan", "content": MARKDOWN});
    let (question, result) = bench.confirmed(NAME, create, "docs.documents.create").await;
    assert!(question.starts_with("Google Docs: create the document \"Q4 plan\"?"), "{question}");
    assert!(question.contains(&format!("Content ({} characters):", MARKDOWN.chars().count())), "{question}");
    assert!(result.contains("https://docs.google.com/document/d/document-00001/edit"), "{result}");
    let text = read(&bench, "document-00001").await;
    assert!(text.contains(MARKDOWN.trim_end()), "{text}");
    assert_eq!(outside_fences(&text), "Document document-00001, 1 tabs. Account: ann@example.com.");
    assert_eq!(bench.fake.rejected(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn all_tabs_are_read() {
    let bench = bench().await;
    let id = bench.fake.state().docs.add("Notes", "first");
    let tabs =
        [("Second".to_owned(), "in the second".to_owned()), ("Third".to_owned(), "in the third".to_owned())];
    bench.fake.state().docs.documents.get_mut(&id).unwrap().tabs = tabs.into();
    let text = read(&bench, &id).await;
    for shown in ["=== Tab: Second (t.1) ===", "in the second", "in the third"] {
        assert!(text.contains(shown), "{text}");
    }
    let missing =
        bench.call(NAME, json!({"action": "read", "document_id": "document-99999"})).await.unwrap_err();
    assert!(missing.contains("does not exist, or it is not shared"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn append_is_asked_about_in_labelled_runs_only() {
    let bench = bench().await;
    let id = bench.fake.state().docs.add("Log", "first");
    let append = |text: &str| json!({"action": "append", "document_id": id, "content": text});
    let done = bench.unasked(NAME, append("## Next\n\n- *item*")).await;
    assert!(done.contains("Appended 17 characters"), "{done}");
    let text = read(&bench, &id).await;
    assert!(text.contains("first\n\n## Next\n\n- *item*"), "{text}");
    let (denied, _) = bench.as_labelled_agent(NAME, append("leak"), Person::Absent).await;
    assert!(denied.is_err());
    let (refused, asked) = bench.as_labelled_agent(NAME, append("leak"), Person::Refuses).await;
    assert_eq!((refused.is_err(), asked.len()), (true, 1));
    let question = gantry_tool::QuestionText::new(&asked[0].action).whole();
    assert!(question.contains("append to the document \"Log\" (document-00001)"), "{question}");
    assert!(question.contains("| leak"), "{question}");
    assert_eq!(bench.fake.seen_of(UPDATE).len(), 1);
    let empty = bench.call(NAME, append("  \n")).await.unwrap_err();
    assert!(empty.contains("nothing to append"), "{empty}");
}

#[tokio::test(flavor = "multi_thread")]
async fn append_starts_again_when_somebody_else_was_first() {
    let bench = bench().await;
    let id = bench.fake.state().docs.add("Log", "first");
    bench.fake.fail(UPDATE, Fault::Reject(400, "failedPrecondition", Vec::new()));
    let append = json!({"action": "append", "document_id": id, "content": "second"});
    assert!(bench.call(NAME, append.clone()).await.is_ok());
    assert_eq!(bench.fake.state().docs.documents[&id].text(), "first\nsecond");
    assert_eq!(bench.fake.seen_of(UPDATE).len(), 2);
    for _ in 0..3 {
        bench.fake.fail(UPDATE, Fault::Reject(400, "failedPrecondition", Vec::new()));
    }
    assert!(bench.call(NAME, append).await.is_err(), "three times is enough");
    assert_eq!(bench.fake.state().docs.documents[&id].text(), "first\nsecond");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_is_never_repeated() {
    let bench = bench().await;
    let id = bench.fake.state().docs.add("Log", "first");
    let append = json!({"action": "append", "document_id": id, "content": "second"});
    bench.fake.fail(UPDATE, Fault::CutAfter);
    let unknown = bench.call(NAME, append.clone()).await.unwrap_err();
    assert!(unknown.contains("may have happened"), "{unknown}");
    bench.fake.fail(UPDATE, Fault::Html(502));
    let unchanged = bench.call(NAME, append).await.unwrap_err();
    assert!(unchanged.contains("was not changed, so you may try again"), "{unchanged}");
    assert_eq!(bench.fake.state().docs.documents[&id].text(), "first\nsecond");
    // A document that was created stays, and a second one is not made.
    bench.fake.fail(UPDATE, Fault::Reject(403, "forbidden", Vec::new()));
    let half = bench.call(NAME, json!({"action": "create", "title": "x", "content": "y"})).await.unwrap_err();
    assert!(half.contains("the empty document document-00002 was created"), "{half}");
    assert!(half.contains("do not create another one"), "{half}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replace_counts_and_confirms() {
    let bench = bench().await;
    let id = bench.fake.state().docs.add("Log", "one two one\nthree");
    let replace = |find: &str, all: bool| json!({"action": "replace", "document_id": id, "find": find, "replace_with": "1", "replace_all": all});
    let twice = bench.call(NAME, replace("one", false)).await.unwrap_err();
    assert!(twice.contains("occurs 2 times"), "{twice}");
    let none = bench.call(NAME, replace("ONE", true)).await.unwrap_err();
    assert!(none.contains("does not occur"), "{none}");
    assert!(bench.call(NAME, replace("four", false)).await.is_err());
    assert!(bench.call(NAME, replace("", true)).await.unwrap_err().contains("must not be empty"));
    assert_eq!(bench.fake.state().docs.documents[&id].text(), "one two one\nthree");
    let before = bench.fake.seen_of(UPDATE).len();
    let (question, result) = bench.confirmed(NAME, replace("one", true), UPDATE).await;
    assert_eq!(
        question,
        format!(
            "Google Docs: replace text in the document \"Log\" ({id})?\n    Find (every occurrence): one\n    Replace with: 1"
        )
    );
    assert!(result.contains("Replaced 2 occurrences"), "{result}");
    let single = bench.call(NAME, replace("three", false)).await.unwrap();
    assert!(single.contains("Replaced 1 occurrence "), "{single}");
    assert_eq!(bench.fake.state().docs.documents[&id].text(), "1 two 1\n1");
    // The single replacement names the revision that was counted.
    let update = bench.fake.seen_of(UPDATE).pop().unwrap();
    assert!(update.body["writeControl"]["requiredRevisionId"].is_string(), "{}", update.body);
    assert_eq!(bench.fake.seen_of(UPDATE).len(), before + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_action_names_the_smallest_missing_scope() {
    let bench = Bench::with_scopes(&["gmail.readonly"]).await;
    let id = "document-00001";
    for (input, scope) in [
        (json!({"action": "read", "document_id": id}), "documents.readonly"),
        (json!({"action": "create", "title": "x"}), "documents"),
        (json!({"action": "replace", "document_id": id, "find": "x", "replace_with": "y"}), "documents"),
    ] {
        let refused = bench.call(NAME, input).await.unwrap_err();
        assert!(refused.contains(&format!("has not granted the scope {scope}")), "{refused}");
    }
    assert_eq!(bench.fake.seen().len(), 0);
    let reader = Bench::with_scopes(&["documents.readonly"]).await;
    let id = reader.fake.state().docs.add("Log", "first");
    assert!(reader.call(NAME, json!({"action": "read", "document_id": id})).await.is_ok());
    let append = json!({"action": "append", "document_id": id, "content": "x"});
    assert!(reader.call(NAME, append).await.unwrap_err().contains("has not granted the scope documents"));
    assert_eq!(reader.fake.rejected(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_input_changes_nothing() {
    let bench = bench().await;
    for (input, why) in [
        (json!({"action": "read"}), "needs the field document_id"),
        (json!({"action": "read", "document_id": "../x/y"}), "must be an id"),
        (json!({"action": "create", "title": " "}), "needs the field title"),
        (json!({"action": "create", "title": "a\nb"}), "on one line"),
        (json!({"action": "append", "document_id": "document-00001"}), "needs the field content"),
        (
            json!({"action": "replace", "document_id": "document-00001", "find": "x"}),
            "needs the field replace_with",
        ),
        (
            json!({"action": "replace", "document_id": "document-00001", "find": "a\nb", "replace_with": ""}),
            "line breaks",
        ),
    ] {
        let refused = bench.call(NAME, input.clone()).await.unwrap_err();
        assert!(refused.contains(why), "{input}: {refused}");
    }
    assert_eq!(bench.fake.seen().len(), 0);
}
