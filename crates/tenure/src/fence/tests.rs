use super::*;

fn fence(resource: &str, ticket: u32, token: u64) -> Fence {
    Fence::new(resource, ticket, token).expect("a fence")
}

// req: T4
#[test]
fn a_write_of_an_earlier_owner_is_refused_and_those_of_the_present_one_pass() {
    let marks = Marks::new();
    let (earlier, later) = (fence("ledger", 0, 7), fence("ledger", 0, 9));

    assert_eq!(marks.admit(&earlier), Ok(()));
    assert_eq!(marks.admit(&earlier), Ok(()));
    assert_eq!(marks.admit(&later), Ok(()));

    let stale = marks.admit(&earlier).expect_err("too late");
    assert_eq!((stale.fence(), stale.newest()), (&earlier, 9));
    assert_eq!(stale.to_string(), "token 7 of ticket 0 of `ledger` is stale: 9 has written already");
    assert_eq!(marks.admit(&later), Ok(()), "what was refused has changed nothing");
}

#[test]
fn owners_of_other_tickets_and_resources_do_not_refuse_each_other() {
    let marks = Marks::new();
    marks.admit(&fence("ledger", 1, 9)).expect("the first");

    assert_eq!(marks.admit(&fence("ledger", 0, 7)), Ok(()));
    assert_eq!(marks.admit(&fence("other", 1, 7)), Ok(()));
}

#[test]
fn what_is_sent_is_read_as_it_was_whatever_the_name() {
    for name in ["ledger", "a b", " both ends ", "100%", "%41", "größe", "学生.echo", "a;b,c\"'"] {
        let sent = fence(name, 999, (1 << 53) - 1);
        let text = sent.to_string();

        assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text:?}");
        assert_eq!(text.trim(), text);
        assert_eq!(text.parse(), Ok(sent));
    }
    assert_eq!(fence("student.echo", 1, 42).to_string(), "42 1 student.echo");
}

#[test]
fn what_makes_no_sense_is_refused_and_says_why() {
    let why = |text: &str| text.parse::<Fence>().expect_err(text).to_string();

    for text in
        ["", "7", "7 0", "7 0 ", "7 0 a%", "7 0 a%4", "7 0 a%zz", "7 0 a%FF", "7 0 a b", "7 0 é", "7 0 %0A"]
    {
        why(text);
    }
    assert_eq!(why("0 0 a"), "token \"0\" is not from 1 to 2^53 - 1");
    assert_eq!(why("9007199254740992 0 a"), "token \"9007199254740992\" is not from 1 to 2^53 - 1");
    assert_eq!(why("+7 0 a"), "token \"+7\" is not a whole number in decimal digits");
    assert_eq!(why("-7 0 a"), "token \"-7\" is not a whole number in decimal digits");
    assert_eq!(why("7 1000 a"), "ticket \"1000\" is not from 0 to 999");
}

#[test]
fn a_process_that_was_started_under_an_ownership_finds_its_fence() {
    let given = |name: &str| match name {
        "TENURE_RESOURCE" => Some("ledger".to_owned()),
        "TENURE_TICKET" => Some("1".to_owned()),
        "TENURE_TOKEN" => Some("42".to_owned()),
        _ => None,
    };

    assert_eq!(Fence::from_variables(given).expect("a fence"), fence("ledger", 1, 42));
    let without = |name: &str| given(name).filter(|_| name != "TENURE_TOKEN");
    let why = Fence::from_variables(without).expect_err("no token").to_string();
    assert_eq!(why, "`TENURE_TOKEN` is not set: this process was not started by `tenure run`");
}
