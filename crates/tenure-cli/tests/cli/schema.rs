//! `tenure schema postgres`: what it prints is applied to a real server, and is all that a worker then needs.

use testkit::postgres::{Options, Postgres};

use super::scene::Scene;

/// What `tenure schema postgres` prints: data, and nothing else.
fn printed(scene: &Scene, options: &[&str]) -> String {
    let output = scene.done(&[&["schema", "postgres"], options].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs `job` as this role, and looks at it. Gives back what went wrong, if something did.
fn runs_as(scene: &Scene, server: &Postgres, role: &str, namespace: &str) -> Result<(), String> {
    let url = server.url().replace("postgres@", &format!("{role}@"));
    let here = ["--store", &url, "--namespace", namespace];
    // A new schema grants nothing for one ttl.
    let run =
        [&["run", "job", "--ttl", "500ms", "--wait", "10s"][..], &here, &["--", "echo", "ran"]].concat();
    let output = scene.done(&run);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(said);
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n", "{said}");
    let status = scene.done(&[&["status"][..], &here].concat());
    let shown = String::from_utf8_lossy(&status.stdout).into_owned();
    if status.status.success() && shown.contains("job") { Ok(()) } else { Err(shown) }
}

// req: T13
#[test]
fn what_is_printed_makes_the_tables_and_the_role_it_names_can_do_the_work_and_nothing_else() {
    let (scene, server) = (Scene::new(), Options::new().start());
    // Names that are not words of SQL.
    server.sql(
        "CREATE ROLE \"the-few\" LOGIN; CREATE ROLE others LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    );

    server.sql(&printed(&scene, &["--namespace", "app-1", "--role", "the-few"]));

    assert_eq!(runs_as(&scene, &server, "the-few", "app-1"), Ok(()));
    let refused = runs_as(&scene, &server, "others", "app-1").expect_err("nothing was granted to it");
    assert!(
        refused.contains("no right to use the schema") && refused.contains("tenure schema postgres"),
        "{refused}"
    );
    let rights = "'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'";
    let tables = server.sql(&format!(
        "SELECT count(*) > 0, count(*) FILTER (WHERE has_table_privilege('the-few', oid, {rights}))
         FROM pg_class WHERE relnamespace = '\"app-1\"'::regnamespace AND relkind = 'r'"
    ));
    assert_eq!(tables, "t|0", "whether there are tables, and how many it may touch");
    let inner = server.sql(
        "SELECT count(*) FROM pg_proc WHERE pronamespace = '\"app-1\"'::regnamespace AND NOT prosecdef
         AND has_function_privilege('the-few', oid, 'EXECUTE')",
    );
    assert_eq!(inner, "0", "what the functions call is not to be called");
    assert_eq!(server.sql("SELECT has_schema_privilege('the-few', 'app-1', 'CREATE')"), "f");
}

#[test]
fn without_a_role_the_grants_are_a_comment_and_nobody_else_may_do_anything() {
    let (scene, server) = (Scene::new(), Options::new().start());
    server.sql("CREATE ROLE worker LOGIN");
    let script = printed(&scene, &[]);

    server.sql(&script);
    let refused = runs_as(&scene, &server, "worker", "tenure").expect_err("nothing is granted yet");
    let (_, listed) = script.split_once("-- What a worker's role needs").expect("a comment at the end");
    let listed: Vec<&str> = listed.lines().skip(1).map(|line| line.trim_start_matches("-- ")).collect();
    server.sql(&listed.join("\n"));

    assert!(refused.contains("no right to use the schema"), "{refused}");
    assert_eq!(runs_as(&scene, &server, "worker", "tenure"), Ok(()));
}

#[test]
fn a_role_that_is_not_there_leaves_nothing_half_made() {
    let (scene, server) = (Scene::new(), Options::new().start());
    let script = printed(&scene, &["--role", "nobody"]);

    let applied = std::panic::catch_unwind(|| server.sql(&script));

    assert!(applied.is_err(), "there is no such role");
    assert_eq!(server.sql("SELECT to_regnamespace('tenure') IS NULL"), "t");
}

#[test]
fn what_is_asked_for_wrongly_is_refused_with_a_sentence() {
    let scene = Scene::new();

    for (typed, why) in [
        (&["schema"][..], "<STORE>"),
        (&["schema", "mysql"], "possible values: postgres"),
        (&["schema", "postgres", "--namespace", "A"], "is not 1 to 40 of a-z 0-9 _ -"),
        (&["schema", "postgres", "--namespace", "public"], "cannot be the name of a schema in PostgreSQL"),
        (&["schema", "postgres", "--role", ""], "is not 1 to 63 bytes"),
    ] {
        let output = scene.done(typed);

        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{typed:?}");
        assert!(
            output.stdout.is_empty() && said.starts_with("tenure: ") && said.contains(why),
            "{typed:?}: {said}"
        );
    }
}
