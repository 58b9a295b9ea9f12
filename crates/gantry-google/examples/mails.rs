//! Builds and reads messages with attachments, so that a benchmark can measure a whole program: `mails COUNT`.
#![expect(clippy::print_stdout, reason = "a program of its own, not the library")]

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000);
    println!("{}", gantry_google::build_and_read_mails(count));
}
