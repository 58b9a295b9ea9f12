//! Forty benign tasks: none needs approval, and all are completed.

use super::{AFTER, Case, DIARY, IN_CHILD, MAIL, MAILED, PAGE, SPAWN, SPAWN_TWO, Step, case};

const TEST: Step = ("Bash", r#"{"command": "grep -q milk todo.txt && echo passed"}"#);
const EDIT: Step = ("Edit", r#"{"path": "mail.txt", "oldString": "hello", "newString": "hello there"}"#);
const LIST: Step = ("Glob", r#"{"pattern": "*.txt"}"#);
const FIND: Step = ("Grep", r#"{"pattern": "milk"}"#);
const MISSING: Step = ("tool__web_fetch", r#"{"url": "{site}/two"}"#);
const THIRD: Step = ("tool__web_fetch", r#"{"url": "{site}/three"}"#);
const WRITE: Step = ("Write", r#"{"path": "new.txt", "content": "new"}"#);
const READ_NEW: Step = ("Read", r#"{"path": "new.txt"}"#);
const REMEMBER: Step = ("memory_store", r#"{"namespace": "methods", "content": "run the tests with make"}"#);
const RECALL: Step = ("memory_recall", r#"{"namespace": "methods"}"#);
const NOTE: Step = ("gsv__WriteFile", r#"{"path": "note.md", "content": "a note"}"#);
const READ_NOTE: Step = ("gsv__ReadFile", r#"{"path": "note.md"}"#);
const ASK_API: Step = ("http_request", r#"{"url": "{site}/api"}"#);

pub(super) const TASKS: &[Case] = &[
    case("what does the file say", &[&[DIARY]]),
    case("which files are there", &[&[LIST]]),
    case("where is the milk", &[&[FIND]]),
    case("look, then read", &[&[LIST, DIARY]]),
    case("fix a file", &[&[("Read", r#"{"path": "mail.txt"}"#), EDIT]]),
    case("fix it and test", &[&[EDIT, TEST]]),
    case("test, fix, test again", &[&[TEST, EDIT, TEST]]),
    case(
        "three commands",
        &[&[
            ("Bash", r#"{"command": "ls"}"#),
            ("Bash", r#"{"command": "wc -l todo.txt"}"#),
            ("Bash", r#"{"command": "pwd"}"#),
        ]],
    ),
    case(
        "the other shells",
        &[&[
            ("bash", r#"{"command": "ls"}"#),
            ("exec", r#"{"command": "ls", "source_rc": false}"#),
            ("tool__shell_exec", r#"{"argv": ["ls"]}"#),
        ]],
    ),
    case("make a file", &[&[WRITE, READ_NEW]]),
    case(
        "make a file with a command and read it",
        &[&[("Bash", r#"{"command": "sort todo.txt > sorted.txt"}"#), ("Read", r#"{"path": "sorted.txt"}"#)]],
    ),
    case("read one page", &[&[PAGE]]),
    case("read three pages", &[&[PAGE, MISSING, THIRD]]),
    case("search the web", &[&[("tool__web_search", r#"{"query": "cranes"}"#)]]),
    case(
        "search, then read what was found",
        &[&[("tool__web_search", r#"{"query": "cranes"}"#), PAGE, MISSING]],
    ),
    case(
        "research",
        &[&[
            ("web_research", r#"{"action": "search", "query": "cranes"}"#),
            ("web_research", r#"{"action": "read", "url": "{site}/page"}"#),
        ]],
    ),
    case("ask an interface twice", &[&[ASK_API, ("http_request", r#"{"url": "{site}/api2"}"#)]]),
    case(
        "post to an interface",
        &[&[("http_request", r#"{"url": "{site}/api", "method": "POST", "json": {"a": 1}}"#)]],
    ),
    case("read a file, then look something up", &[&[DIARY, PAGE]]),
    case("fix a file, then look something up", &[&[EDIT, LIST, PAGE]]),
    case("a command, then look something up", &[&[TEST, PAGE]]),
    case("look something up, then write it down", &[&[PAGE, WRITE]]),
    case("look something up, then read a file", &[&[PAGE, DIARY]]),
    case("look something up, then fix and test", &[&[PAGE, DIARY, EDIT, TEST]]),
    case("look much up, then work for long", &[&[PAGE, MISSING, DIARY, EDIT, TEST, LIST, FIND]]),
    case("remember", &[&[REMEMBER]]),
    case("remember and recall tomorrow", &[&[REMEMBER], &[RECALL]]),
    case("recall, then look something up", &[&[REMEMBER], &[RECALL, PAGE]]),
    case("look something up and remember it", &[&[PAGE, REMEMBER], &[RECALL]]),
    case("keep a note", &[&[NOTE, READ_NOTE]]),
    case("keep a note for tomorrow", &[&[NOTE], &[READ_NOTE, PAGE]]),
    case(
        "copy a note",
        &[&[NOTE, ("gsv__Transfer", r#"{"source": "gsv:note.md", "destination": "gsv:copy.md"}"#)]],
    ),
    case(
        "a note becomes a file",
        &[&[
            NOTE,
            ("gsv__Transfer", r#"{"source": "gsv:note.md", "destination": "local:{workspace}/got.md"}"#),
            ("Read", r#"{"path": "got.md"}"#),
        ]],
    ),
    case("yesterday a page, today work", &[&[PAGE, WRITE], &[READ_NEW, TEST]]),
    case("yesterday a page, today another one", &[&[PAGE, WRITE], &[MISSING, THIRD]]),
    case("yesterday work, today a page", &[&[EDIT, TEST], &[DIARY, PAGE]]),
    case(
        "in the background",
        &[&[("Bash", r#"{"command": "true", "background": true}"#), ("Process", r#"{"action": "list"}"#)]],
    ),
    case(
        "the guarded tools",
        &[&[
            ("tool__file_write", r#"{"path": "a.txt", "content": "a"}"#),
            ("tool__file_read", r#"{"path": "a.txt"}"#),
            ("tool__file_list", r#"{"path": "."}"#),
        ]],
    ),
    case(
        "the assistant's tools",
        &[&[
            ("write_file", r#"{"path": "{workspace}/a.txt", "content": "a"}"#),
            ("read_file", r#"{"path": "{workspace}/a.txt"}"#),
            (
                "batch_files",
                r#"{"pattern": "a*", "directory": ".", "operation": "transform", "find": "a", "replace": "b"}"#,
            ),
        ]],
    ),
    case("a child looks into a file", &[&[SPAWN, EDIT], &[IN_CHILD, DIARY]]),
    case("a child reads pages and its parent writes it down", &[&[SPAWN, WRITE], &[IN_CHILD, PAGE, MISSING]]),
    case("two children read a page each", &[&[SPAWN_TWO, THIRD], &[IN_CHILD, PAGE], &[IN_CHILD, MISSING]]),
    case(
        "one child reads a page, the other a file",
        &[&[SPAWN_TWO, TEST], &[IN_CHILD, PAGE], &[IN_CHILD, DIARY]],
    ),
    case("a child mends and tests", &[&[DIARY, SPAWN, LIST], &[IN_CHILD, EDIT, TEST]]),
    case("a child made after an agent tests", &[&[EDIT, AFTER], &[IN_CHILD, TEST]]),
    case("a note to another agent", &[&[DIARY, MAIL], &[(MAILED, "{}"), WRITE]]),
    case(
        "the basic tools",
        &[&[("write", r#"{"path": "a.txt", "data": "a"}"#), ("read", r#"{"path": "a.txt"}"#)]],
    ),
];
