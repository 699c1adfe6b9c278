//! `tenure new`: what it writes compiles without a warning and runs; and what it refuses.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};

use super::scene::{LIMIT, Scene, until};

fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// `tenure` in a folder of the scene.
fn tenure(scene: &Scene, folder: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut tenure = scene.tenure();
    told(&tenure.current_dir(scene.file(folder)).args(arguments).output().expect("it runs"))
}

/// The checkout that is tested.
fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a folder")
}

/// What cargo says of a project, with clippy in the place of the compiler: `cargo clippy` would look at all dependencies
/// before they are built. It shares its folder for builds with these tests, so that hardly anything is built again.
fn cargo(project: &Path, arguments: &[&str]) -> Output {
    let target = Path::new(env!("CARGO_BIN_EXE_tenure")).ancestors().nth(2).expect("target/PROFILE/tenure");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(cargo);
    cargo.current_dir(project).env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0");
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    // As in the profile of this workspace, so that most of what the service needs has been built already.
    cargo.args(["--config", "profile.dev.debug='line-tables-only'"]);
    cargo.args(["--config", "profile.dev.package.'*'.debug=false"]);
    cargo.args(arguments).output().expect("it runs")
}

fn write(scene: &Scene, path: &str, text: &str) {
    let path = scene.file(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
    std::fs::write(path, text).expect("a file");
}

fn read(scene: &Scene, path: &str) -> String {
    std::fs::read_to_string(scene.file(path)).expect(path)
}

const MANIFEST: &str = "[package]\nname = \"shop\"\n\n[dependencies]\ntenure = \"0.1\"\ntokio = \"1\"\n";

/// A copy of the program, and what it prints.
struct Copy {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Copy {
    fn start(program: &Path, scene: &Scene) -> Self {
        let mut command = Command::new("env");
        command.arg("--default-signal=INT,TERM").arg(program).env("TENURE_STORE", scene.url());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (to, lines) = mpsc::channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| to.send(line).is_ok());
        });
        Self { child, lines }
    }

    /// Reads on until it says this.
    fn says(&self, what: &str) {
        loop {
            let line = self.lines.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("it never said {what:?}"));
            if line == what {
                return;
            }
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    fn ends(&mut self) -> ExitStatus {
        until("its end", || self.child.try_wait().expect("an answer"))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

// req: A1 A2 A4 A5
#[test]
fn a_new_service_with_a_new_module_compiles_without_a_warning_and_runs() {
    let scene = Scene::new();
    let (name, checkout) = ("tenure-new-service", checkout());
    let project = scene.file(name);

    let path = checkout.to_str().expect("UTF-8");
    let (code, written, hint) = tenure(&scene, ".", &["new", "app", name, "--tenure-path", path]);
    assert_eq!(code, Some(0), "{hint}");
    let files = ["Cargo.toml", ".gitignore", "src/main.rs", "src/hello.rs"];
    assert_eq!(written, files.map(|file| format!("wrote `{name}/{file}`\n")).concat());
    assert!(hint.contains(&format!("hint: cd {name} && cargo run")), "{hint}");

    let module = ["new", "module", "student", "--resource", "echo", "--resource", "daily-report:2"];
    let (code, written, hint) = tenure(&scene, &format!("{name}/src"), &module);
    assert_eq!((code, hint.as_str()), (Some(0), ""));
    assert_eq!(
        written,
        "wrote `src/student.rs`: `student.echo`, `student.daily-report` (2 tickets)\n\
         added `mod student;` to `src/main.rs`\n\
         added `.module(student::Student)` to the application in `src/main.rs`\n"
    );

    // Names of every length, and one that is a word of Rust, too.
    let long = "a-name-that-is-as-long-as-a-name-can-be9";
    let (code, _, error) =
        tenure(&scene, name, &["new", "module", "job", "--resource", "match", "--resource", long]);
    assert_eq!(code, Some(0), "{error}");

    // Offline, with the versions that are there: those of the checkout.
    std::fs::copy(checkout.join("Cargo.lock"), project.join("Cargo.lock")).expect("a copy");
    let (code, formatted, error) = told(&cargo(&project, &["fmt", "--check"]));
    assert_eq!(code, Some(0), "{formatted}{error}");
    let (code, _, built) = told(&cargo(&project, &["build", "--offline"]));
    assert!(code == Some(0) && !built.contains("warning"), "{built}");

    let program = Path::new(env!("CARGO_BIN_EXE_tenure")).with_file_name(name);
    let mut first = Copy::start(&program, &scene);
    first.says(&format!("hello.timer: Hello World, pid {}", first.pid()));
    let mut second = Copy::start(&program, &scene);
    second.says("student.daily-report: owns ticket 1, term 2");
    first.signal(Signal::TERM);
    first.says("student.echo: stopped (Left)");
    assert!(first.ends().success());
    second.says(&format!("hello.timer: Hello World, pid {}", second.pid()));
    second.signal(Signal::INT);
    assert!(second.ends().success());
}

/// A service that depends on this checkout.
fn new_app(scene: &Scene, name: &str) -> (Option<i32>, String, String) {
    let checkout = checkout();
    tenure(scene, ".", &["new", "app", name, "--tenure-path", checkout.to_str().expect("UTF-8")])
}

#[test]
fn a_service_depends_on_a_checkout_that_is_named() {
    let scene = Scene::new();
    let (code, _, error) = tenure(&scene, ".", &["new", "app", "shop"]);
    assert_eq!(code, Some(125));
    assert!(error.contains("hint: name a checkout of Tenure: --tenure-path PATH"), "{error}");
    assert!(!scene.file("shop").exists());

    assert_eq!(new_app(&scene, "shop").0, Some(0));
    let manifest = read(&scene, "shop/Cargo.toml");
    assert!(manifest.contains("\ntenure = { path = \"/"), "{manifest}");
    let (code, _, error) = tenure(&scene, ".", &["new", "app", "other", "--tenure-path", "shop"]);
    assert_eq!(code, Some(125));
    assert!(error.contains("`shop` is no checkout of Tenure: there is no package `tenure`"), "{error}");
    assert!(!scene.file("other").exists());
}

#[test]
fn a_service_inside_a_workspace_has_to_be_made_a_member() {
    let scene = Scene::new();
    write(&scene, "Cargo.toml", "[workspace]\nmembers = []\n");

    let (code, _, hint) = new_app(&scene, "shop");

    assert_eq!(code, Some(0));
    assert!(hint.contains("hint: it lies in the workspace of `") && hint.contains("/Cargo.toml`"), "{hint}");
}

// req: A4
#[test]
fn nothing_that_is_there_is_overwritten() {
    let scene = Scene::new();
    assert_eq!(new_app(&scene, "shop").0, Some(0));
    let module = ["new", "module", "student", "--resource", "echo"];
    assert_eq!(tenure(&scene, "shop", &module).0, Some(0));
    let before = (read(&scene, "shop/src/student.rs"), read(&scene, "shop/src/main.rs"));

    let (code, told, error) = tenure(&scene, "shop", &["new", "module", "student", "--resource", "other"]);
    assert_eq!((code, told.as_str()), (Some(125), ""));
    assert!(error.contains("`src/student.rs` is there already; nothing was written"), "{error}");
    assert_eq!(before, (read(&scene, "shop/src/student.rs"), read(&scene, "shop/src/main.rs")));

    // Also one that is elsewhere.
    std::fs::remove_file(scene.file("shop/src/student.rs")).expect("it goes");
    let (code, _, error) = tenure(&scene, "shop", &module);
    assert_eq!(code, Some(125));
    assert!(error.contains("`src/main.rs` has a module `student` already; nothing was written"), "{error}");
    assert!(!scene.file("shop/src/student.rs").exists());

    let (code, _, error) = new_app(&scene, "shop");
    assert_eq!(code, Some(125));
    assert!(error.contains("`shop` is there already; nothing was written"), "{error}");
    assert_eq!(before.1, read(&scene, "shop/src/main.rs"));
}

#[test]
fn a_service_whose_folder_cannot_be_made_is_not_begun() {
    let scene = Scene::new();

    let (code, told, error) = new_app(&scene, "no/shop");

    assert_eq!((code, told.as_str()), (Some(125), ""));
    assert!(error.contains("cannot make the folder `no/shop`: No such file or directory"), "{error}");
}

#[test]
fn the_application_of_another_crate_is_left_alone_and_a_licence_stays_above() {
    let scene = Scene::new();
    write(&scene, "Cargo.toml", MANIFEST);
    let main = "/*\n licence\n*/\n//! What it is.\n#![allow(dead_code)]\n\nfn main() {\n    HttpServer::new(|| App::new())\n        .run();\n}\n";
    write(&scene, "src/main.rs", main);

    let (code, _, hint) = tenure(&scene, ".", &["new", "module", "student", "--resource", "echo"]);

    assert_eq!(code, Some(0), "{hint}");
    assert!(hint.contains("to your `tenure::app::App`"), "{hint}");
    let expected = main.replace("\n\nfn main", "\n\nmod student;\n\nfn main");
    assert_eq!(read(&scene, "src/main.rs"), expected);
}

// req: A4
#[test]
fn where_there_is_no_application_it_says_which_line_to_add() {
    let scene = Scene::new();
    write(&scene, "Cargo.toml", MANIFEST);
    write(&scene, "src/lib.rs", "//! A library.\n\npub fn x() {}\n");

    let (code, written, hint) = tenure(&scene, "src", &["new", "module", "job", "--resource", "echo"]);

    assert_eq!(code, Some(0), "{hint}");
    assert_eq!(written, "wrote `src/job.rs`: `job.echo`\nadded `pub mod job;` to `src/lib.rs`\n");
    assert!(
        hint.contains("hint: add `.module(job::Job)` to your `tenure::app::App`, before `.run()`"),
        "{hint}"
    );
    assert_eq!(read(&scene, "src/lib.rs"), "//! A library.\n\npub mod job;\n\npub fn x() {}\n");
    // Two types cannot have one name.
    assert!(read(&scene, "src/job.rs").contains("pub enum Work in \"job\""));
}

#[test]
fn the_number_of_tickets_is_what_was_typed_and_no_setting() {
    let scene = Scene::new();
    write(&scene, "Cargo.toml", MANIFEST);
    write(&scene, "src/main.rs", "fn main() {}\n");
    let module = |name: &str, more: &[&str]| {
        let mut tenure = scene.tenure();
        tenure.env("TENURE_TICKETS", "7").args([
            "new",
            "module",
            name,
            "--resource",
            "a",
            "--resource",
            "b:2",
        ]);
        assert!(tenure.args(more).output().expect("it runs").status.success());
        read(&scene, &format!("src/{name}.rs"))
    };

    let without = module("one", &[]);
    assert!(without.contains("A = \"a\",\n") && without.contains("B = \"b\" (tickets: 2),\n"), "{without}");
    let with = module("two", &["--tickets", "3"]);
    assert!(
        with.contains("A = \"a\" (tickets: 3),\n") && with.contains("B = \"b\" (tickets: 2),\n"),
        "{with}"
    );
}

// req: A4
#[test]
fn what_cannot_be_is_refused_with_a_sentence_and_nothing_is_written() {
    let module = ["new", "module", "student", "--resource", "echo"];
    for (files, arguments, what) in [
        (&[][..], &module[..], "there is no Cargo project here: no Cargo.toml in `"),
        (&[("Cargo.toml", "[workspace]\n")], &module, "is a workspace without a package of its own"),
        (&[("Cargo.toml", "[package")], &module, "Cargo.toml` is not TOML: "),
        (&[("Cargo.toml", "[package]\nname = 'x'\n")], &module, "Cargo.toml` does not depend on `tenure`"),
        (&[("Cargo.toml", MANIFEST)], &module, "has neither src/main.rs nor src/lib.rs"),
        (
            &[("Cargo.toml", MANIFEST), ("src/main.rs", "")],
            &["new", "module", "Student", "--resource", "echo"],
            "a module cannot be called \"Student\": it is not 1 to 40 of a-z 0-9 _",
        ),
        (
            &[("Cargo.toml", MANIFEST), ("src/main.rs", "")],
            &["new", "module", "tokio", "--resource", "echo"],
            "a module cannot be called `tokio`",
        ),
        (
            &[("Cargo.toml", MANIFEST), ("src/main.rs", "")],
            &["new", "module", "student", "--resource", "echo:0"],
            "--resource echo:0: number of tickets \"0\" is not 1 to 1000",
        ),
        (
            &[("Cargo.toml", MANIFEST), ("src/main.rs", "")],
            &["new", "module", "student"],
            "--resource <RESOURCE[:K]>",
        ),
        (&[], &["new", "app", "../Shop"], "a package cannot be called \"../Shop\""),
        (&[], &["new", "thing"], "unrecognized subcommand 'thing'"),
    ] {
        let scene = Scene::new();
        for (path, text) in files {
            write(&scene, path, text);
        }

        let (code, told, error) = tenure(&scene, ".", arguments);

        assert_eq!((code, told.as_str()), (Some(125), ""), "{arguments:?}: {error}");
        assert!(error.starts_with("tenure: ") && error.contains(what), "{arguments:?}: {error}");
        assert!(!scene.file("src/student.rs").exists() && !scene.file("no").exists());
        for (path, text) in files {
            assert_eq!(read(&scene, path), *text);
        }
    }
}
