use super::*;
use crate::shim::Step;

#[test]
fn a_server_keeps_its_data_over_a_kill_and_an_older_copy_can_be_put_back() {
    let mut server = Options::new().start();
    server.sql("CREATE TABLE a (v int); INSERT INTO a VALUES (1)");
    server.back_up();
    server.sql("UPDATE a SET v = 2");

    server.kill();
    server.start();
    assert_eq!(server.sql("SELECT v FROM a"), "2");

    server.stop_immediately();
    server.restore();
    server.start();
    assert_eq!(server.sql("SELECT v FROM a"), "1");

    server.stop();
    server.keep();
    server.start();
    server.sql("UPDATE a SET v = 3");
    server.stop();
    server.restore();
    server.start();
    assert_eq!(server.sql("SELECT v FROM a"), "1");
}

#[test]
fn a_server_has_a_clock_of_its_own() {
    let server = Options::new().own_clock().start();
    let now = || {
        server.sql("SELECT extract(epoch FROM clock_timestamp())::bigint").parse::<i64>().expect("seconds")
    };
    let before = now();

    server.clock().step(Step::Forward(Duration::from_secs(60)));

    assert!((60..70).contains(&(now() - before)));
}

#[test]
fn a_standby_follows_and_takes_over() {
    let mut server = Options::new().start();
    let standby = server.standby();
    server.sql("CREATE TABLE a (v int)");
    crate::eventually(STARTS_WITHIN, "the standby follows", || {
        standby.sql("SELECT count(*) FROM pg_class WHERE relname = 'a'") == "1"
    });
    assert_eq!(standby.sql("SELECT pg_is_in_recovery()"), "t");

    server.kill();
    standby.promote();

    standby.sql("INSERT INTO a VALUES (1)");
}

#[test]
fn a_pooler_passes_statements_on() {
    let server = Options::new().start();
    let pooler = Bouncer::before(&server, Pooling::Transactions);
    let mut command = Command::new(program("psql"));
    command.args(["-XAtq", "-c", "SELECT 1", "-d"]).arg(server.url_at(pooler.port()));

    let said = command.output().expect("psql runs");

    assert_eq!(String::from_utf8_lossy(&said.stdout), "1\n", "{}", String::from_utf8_lossy(&said.stderr));
}
