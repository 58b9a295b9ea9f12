//! Gantry against real programs: each pair measured in turns in one run, medians and ratios in one table.

mod agent;
mod build;
mod channels;
mod corpus;
mod flow;
mod gateway;
mod google;
mod mcp;
mod measure;
mod page;
mod pipelines;
mod sandbox;
mod web;
mod web_pages;
mod workers;

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{setup, shell};
use corpus::Corpus;
use measure::{Side, median_ms, peak_memory_mib, turns};

const RUNS: usize = 11;

struct Row {
    work: &'static str,
    against: &'static str,
    ours: String,
    theirs: String,
    result: String,
    goal: &'static str,
    met: bool,
}

/// Runs the benchmarks that `names` mean, or all.
pub(crate) fn run(names: &[String]) -> Result<()> {
    if names.iter().any(|name| name == "build") {
        return build::run();
    }
    setup::for_benchmarks()?;
    let profile = profile();
    let profile = profile.as_str();
    shell::step(&["cargo", "build", "--profile", profile, "-p", "gantry"])?;
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| matches(name, wanted));
    for &(name, parts) in PROGRAMS {
        if wanted(name) {
            shell::step(&[&["cargo", "build", "--profile", profile, "-p"][..], parts].concat())?;
        }
    }
    let target = shell::root().join("target");
    let corpus = Corpus::make(&target.join("bench"))?;
    // Cargo's folder of the profile `dev` has another name.
    let gantry = target.join(if profile == "dev" { "debug" } else { profile }).join("gantry");
    forget(&gantry)?;

    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for &(name, bench) in BENCHES {
        if wanted(name) {
            println!("measuring {name} …");
            match bench(&gantry, &corpus) {
                Ok(measured) => rows.extend(measured),
                Err(err) => {
                    println!("benchmark {name} failed: {err:#}");
                    failed.push(name);
                }
            }
        }
    }
    print(&rows);
    println!(
        "\nprofile: {profile}\nbinary size: {:.1} MiB",
        std::fs::metadata(&gantry)?.len() as f64 / 1_048_576.0
    );
    let start = turns(21, &mut [Side::new(&gantry, &["tools", "-q"]).data_dir(&corpus.data)])?;
    println!("cold start of `gantry tools`: {:.1} ms", median_ms(&start[0]));
    ensure!(failed.is_empty(), "these benchmarks failed: {}", failed.join(", "));
    Ok(())
}

/// Whether `wanted` means the benchmark: by its whole name, else by a part of it.
fn matches(name: &str, wanted: &str) -> bool {
    let exact = BENCHES.iter().any(|(known, _)| *known == wanted);
    if exact { name == wanted } else { name.contains(wanted) }
}

/// The profile of the measured binary: the packaged one, unless `BENCH_PROFILE` names another, such as `release`, which
/// builds in half the time.
pub(crate) fn profile() -> String {
    std::env::var("BENCH_PROFILE").unwrap_or_else(|_| "dist".to_owned())
}

/// What the linker has just written lies in the page cache in large pieces, and a process that touches one counts it whole. A
/// program that was installed is read in as it is used.
fn forget(program: &Path) -> Result<()> {
    shell::step(&["sync"])?;
    let program = format!("if={}", program.display());
    shell::step(&["dd", &program, "iflag=nocache", "count=0", "status=none"])
}

/// Programs that the benchmarks measure with.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("in-process", &["gantry-toolsets", "--features", "testing", "--example", "in_process"]),
    ("in-process", &["gantry-process", "--bins"]),
    ("gateway", &["gantry-gateway", "--example", "routed"]),
    ("web", &["gantry-net", "--example", "fetch"]),
    ("agent", &["gantry-agent", "--example", "journal"]),
    ("channels", &["gantry-channels", "--example", "chats"]),
    ("flow", &["gantry-flow", "--example", "outbox_messages"]),
    ("google", &["gantry-google", "--features", "testing", "--example", "mails"]),
    ("google", &["gantry-google", "--example", "reads"]),
    ("sandbox", &["gantry-process", "--bins"]),
    ("sandbox", &["gantry-process", "--example", "latency"]),
    ("sandbox", &["gantry-files", "--example", "changed"]),
    ("sandbox", &["gantry-net", "--example", "egress_download"]),
    ("workers", &["gantry-process", "--bins"]),
    ("workers", &["gantry-toolsets", "--bins"]),
    ("workers", &["gantry-toolsets", "--features", "testing", "--example", "workers"]),
];

type Bench = fn(&Path, &Corpus) -> Result<Vec<Row>>;

const BENCHES: &[(&str, Bench)] = &[
    ("grep", grep),
    ("glob", glob),
    ("read", read),
    ("edit", edit),
    ("patch", patch),
    ("in-process", in_process),
    ("gateway", gateway::run),
    ("web", web::run),
    ("web-pages", web_pages::run),
    ("mcp", mcp::run),
    ("agent", agent::run),
    ("channels", channels::run),
    ("flow", flow::run),
    ("google", google::run),
    ("sandbox", sandbox::run),
    ("workers", workers::run),
    ("pipelines", pipelines::run),
    ("page", page::run),
];

fn call(gantry: &Path, corpus: &Corpus, tool: &str, input: &Value) -> Side {
    Side::new(gantry, &["call", tool, &input.to_string(), "-q"]).data_dir(&corpus.data).cwd(&corpus.tree)
}

fn ratio_row(
    work: &'static str,
    against: &'static str,
    sides: [Side; 2],
    at_most: f64,
    goal: &'static str,
) -> Result<Row> {
    let mut sides = sides;
    let times = turns(RUNS, &mut sides)?;
    let (ours, theirs) = (median_ms(&times[0]), median_ms(&times[1]));
    let ratio = ours / theirs;
    Ok(Row {
        work,
        against,
        ours: format!("{ours:.1} ms"),
        theirs: format!("{theirs:.1} ms"),
        result: format!("{ratio:.2} ×"),
        goal,
        met: ratio <= at_most,
    })
}

fn grep(gantry: &Path, corpus: &Corpus) -> Result<Vec<Row>> {
    let pair = |pattern: &str| {
        let ours = call(gantry, corpus, "Grep", &json!({ "pattern": pattern }));
        let theirs = Side::new("rg", &["-uuu", "-L", "-n", pattern, "."]).cwd(&corpus.tree);
        [ours, theirs]
    };
    Ok(vec![
        ratio_row("Grep, rare pattern, 50,000 files", "rg -uuu -L -n", pair(corpus::RARE), 1.05, "≤ 1.05 ×")?,
        ratio_row(
            "Grep, common pattern, 50,000 files",
            "rg -uuu -L -n",
            pair(corpus::COMMON),
            0.5,
            "≤ 0.5 ×",
        )?,
    ])
}

fn glob(gantry: &Path, corpus: &Corpus) -> Result<Vec<Row>> {
    let ours = call(gantry, corpus, "Glob", &json!({"pattern": "**/*.rs"}));
    let find = "fdfind -uu -L -t f -g '*.rs' -0 . | xargs -0 -n 100000 -s 2000000 ls -t";
    let theirs = Side::new("sh", &["-c", find]).cwd(&corpus.tree);
    Ok(vec![ratio_row("Glob **/*.rs newest first", "fd + ls -t", [ours, theirs], 1.0, "≤ 1.0 ×")?])
}

fn read(gantry: &Path, corpus: &Corpus) -> Result<Vec<Row>> {
    let big = corpus.big_file()?;
    let first = big.lines - 150;
    let path = big.path.to_string_lossy();
    let ours = || call(gantry, corpus, "Read", &json!({"path": path, "offset": first, "limit": 100}));
    let (from, to) = (first + 1, first + 100);
    let script = format!("wc -l {path}; sed -n '{from},{to}p;{to}q' {path}");
    let theirs = Side::new("sh", &["-c", &script]);
    let mut rows = vec![ratio_row(
        "Read 100 lines near the end of 1 GiB",
        "wc -l + sed -n",
        [ours(), theirs],
        0.7,
        "≤ 0.7 ×",
    )?];
    let memory = peak_memory_mib(&mut ours())?;
    rows.push(Row {
        work: "  its memory, whole process",
        against: "",
        ours: format!("{memory:.1} MiB"),
        theirs: String::new(),
        result: String::new(),
        goal: "< 16 MiB",
        met: memory < 16.0,
    });
    Ok(rows)
}

fn edit(gantry: &Path, corpus: &Corpus) -> Result<Vec<Row>> {
    let (mine, other) = corpus.two_edit_files()?;
    // Each run turns the line into the other of two, so that every run has one line to change.
    let change = |from: &str, to: &str| json!({"path": mine.to_string_lossy(), "oldString": format!("the line {from} to change"), "newString": format!("the line {to} to change")});
    let ours = call(gantry, corpus, "Edit", &change("A", "B")).alternating(call(
        gantry,
        corpus,
        "Edit",
        &change("B", "A"),
    ));
    let other = other.to_string_lossy();
    let sed = |from: &str, to: &str| {
        Side::new("sed", &["-i", &format!("s/the line {from} to change/the line {to} to change/"), &other])
    };
    let theirs = sed("A", "B").alternating(sed("B", "A"));
    Ok(vec![ratio_row("Edit one line in 100 MiB", "sed -i", [ours, theirs], 1.0, "≤ 1.0 ×")?])
}

fn patch(gantry: &Path, corpus: &Corpus) -> Result<Vec<Row>> {
    let work = corpus.patch_work()?;
    let input = format!("@{}", work.input.display());
    let ours = Side::new(gantry, &["call", "tool::apply_patch", &input, "-q"])
        .data_dir(&corpus.data)
        .cwd(&work.folder)
        .before(work.restore("ours.txt"));
    let script = format!("patch -s theirs.txt < {}", work.diff.display());
    let theirs = Side::new("sh", &["-c", &script]).cwd(&work.folder).before(work.restore("theirs.txt"));
    Ok(vec![ratio_row("apply_patch, 500 hunks on 10 MiB", "GNU patch", [ours, theirs], 1.0, "≤ 1.0 ×")?])
}

/// Measures calls within one process, as a gateway makes them.
fn in_process(gantry: &Path, _: &Corpus) -> Result<Vec<Row>> {
    let example = gantry.with_file_name("examples").join("in_process");
    let printed = shell::output(&[&example.to_string_lossy()], &[])?;
    let found: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())?;
    let number = |name: &str| found[name].as_f64().unwrap_or(f64::NAN);
    let (bash, direct) = (number("bashMs"), number("directShellMs"));
    let (reading, writing, sync) = (number("readOnlyUs"), number("writingUs"), number("syncUs"));
    let more = bash - direct;
    Ok(vec![
        Row {
            work: "Bash `true`",
            against: "the same shell directly",
            ours: format!("{bash:.2} ms"),
            theirs: format!("{direct:.2} ms"),
            result: format!("{more:+.2} ms"),
            goal: "≤ +1.5 ms",
            met: more <= 1.5,
        },
        Row {
            work: "gate, read-only tool, audit on",
            against: "a function call",
            ours: format!("{reading:.1} µs"),
            theirs: format!("{:.2} µs", number("functionUs")),
            result: format!("{reading:.1} µs"),
            goal: "< 50 µs",
            met: reading < 50.0,
        },
        Row {
            work: "gate, writing tool, audit on",
            against: "two syncs and 100 µs",
            ours: format!("{writing:.1} µs"),
            theirs: format!("{:.1} µs", 2.0 * sync + 100.0),
            result: format!("{:.2} syncs", number("syncsPerCall")),
            goal: "≤ 2 syncs + 100 µs",
            met: writing <= 2.0 * sync + 100.0 && number("syncsPerCall") <= 2.0,
        },
    ])
}

fn print(rows: &[Row]) {
    println!(
        "\n| work | against | Gantry | other | ratio | goal | |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    for Row { work, against, ours, theirs, result, goal, met } in rows {
        let mark = if *met { "met" } else { "MISSED" };
        println!("| {work} | {against} | {ours} | {theirs} | {result} | {goal} | {mark} |");
    }
}
