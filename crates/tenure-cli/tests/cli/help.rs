//! Completions, the manual, and help that teaches.

use super::scene::Scene;

pub(crate) const COMMANDS: [&str; 14] = [
    "run",
    "cron",
    "once",
    "status",
    "history",
    "step-down",
    "explain",
    "doctor",
    "config",
    "demo",
    "completions",
    "man",
    "schema",
    "new",
];

fn told(scene: &Scene, arguments: &[&str]) -> String {
    let output = scene.done(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn every_command_has_help_with_examples() {
    let scene = Scene::new();
    let all = told(&scene, &["--help"]);

    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{command} is missing: {all}");
        let help = told(&scene, &[command, "--help"]);
        assert!(help.contains("Examples:\n  ") || help.contains(":\n  tenure "), "{help}");
        assert!(help.contains(&format!("  tenure {command}")) || command == "config", "{help}");
    }
    assert!(!all.contains("demo-worker"), "{all}");
    let run = told(&scene, &["run", "--help"]);
    assert!(
        run.contains("\n  124    the ownership was lost") && run.contains("in tenure.toml, else"),
        "{run}"
    );
}

#[test]
fn what_nobody_types_is_offered_to_nobody() {
    let scene = Scene::new();

    for typed in [&[][..], &["man", "qqq"], &["new"]] {
        let output = scene.done(typed);

        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125));
        assert!(!said.contains("demo-worker") && !said.contains("help-"), "{said}");
    }
    let bare = scene.done(&["new"]);
    assert!(bare.stderr.starts_with(b"Write a module"), "{}", String::from_utf8_lossy(&bare.stderr));
}

#[test]
fn completions_for_every_shell_know_commands_and_options() {
    let scene = Scene::new();

    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = told(&scene, &["completions", shell]);

        for word in ["step-down", "doctor", "wait-for-store", "tickets"] {
            assert!(completions.contains(word), "{shell} does not know {word}");
        }
        assert!(!completions.contains("demo-worker"), "{shell} offers what nobody types");
    }
    let output = scene.done(&["completions", "csh"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("[possible values: bash, elvish, fish"));
}

#[test]
fn bash_understands_its_completions() {
    use std::io::Write;
    let scene = Scene::new();
    let mut script = told(&scene, &["completions", "bash"]);
    script += "\nCOMP_WORDS=(tenure st); COMP_CWORD=1; _tenure tenure st tenure; echo \"${COMPREPLY[*]}\"\n";

    let mut bash = std::process::Command::new("bash");
    bash.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut bash = bash.spawn().expect("bash runs");
    bash.stdin.take().expect("its stdin").write_all(script.as_bytes()).expect("it reads");
    let output = bash.wait_with_output().expect("it ends");

    assert_eq!(String::from_utf8_lossy(&output.stdout), "status step-down\n");
}

#[test]
fn the_manual_is_a_man_page_for_all_and_for_each() {
    let scene = Scene::new();
    let all = told(&scene, &["man"]);
    assert!(all.contains(".TH tenure 1") && all.contains("Exit codes:"), "{all}");

    for command in COMMANDS {
        let page = told(&scene, &["man", command]);
        assert!(page.contains(&format!(".TH tenure-{command} 1")), "{page}");
        assert!(page.contains(".SH OPTIONS"), "{page}");
    }
    let below = told(&scene, &["man", "new-module"]);
    assert!(below.contains(".TH tenure-new-module 1") && below.contains("tickets"), "{below}");
    assert_eq!(told(&scene, &["man", "new", "module"]), below);
    let run = told(&scene, &["man", "run"]);
    assert!(run.contains("<RESOURCE> \\-\\- <COMMAND>..."), "{run}");
    let output = scene.done(&["man", "histroy"]);
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is no command `histroy`\n\nhint: did you mean `history`?"), "{said}");
}
