//! The program; all of it is in the library.

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    faults::main(&words)
}
