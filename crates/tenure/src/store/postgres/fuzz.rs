//! What a URL says, and whatever a server could: by the million. Neither makes a panic, and no secret is told.

use std::time::Duration;

use tenure_core::{LeaseId, ResourceName};
use testkit::fuzz::{Maker, Verdict, fuzz, is_a_sentence, keeps_secrets, url_with_a_secret};

use super::calls;
use super::ears;
use super::trouble::Trouble;
use super::url::Target;

#[test]
fn postgres_urls() {
    let make = |make: &mut Maker| {
        let like = [
            "postgres://me:SwordfiSh@db:5432/jobs",
            "postgres://me@a,b:5433/jobs?sslmode=disable&connect_timeout=3",
            "postgres://me:SwordfiSh@db/jobs?listen=postgres%3A%2F%2Fme:hunter22@c%2Fjobs",
            "postgresql://db/jobs?target_session_attrs=any&load_balance_hosts=random&keepalives=0",
            "postgres://%2Frun%2Fpostgresql/jobs?user=me&application_name=x",
            "postgres://db/jobs?host=a,b&hostaddr=10.0.0.1,10.0.0.2&port=1,2",
            "postgres://db/jobs?sslrootcert=/nowhere/root.crt&sslmode=verify-full",
        ];
        if make.is_one_of(2) {
            make.text(&like)
        } else {
            url_with_a_secret(make, &["postgres", "postgresql"])
        }
    };
    fuzz("postgres_urls", make, |url| {
        let target = Target::parse(url);
        match &target {
            Ok(target) => {
                keeps_secrets(&format!("{target} {target:?} {:?}", target.listen), url);
                assert!(target.to_string().starts_with("`postgres://"));
            }
            Err(error) => {
                keeps_secrets(&format!("{error:?}"), url);
                is_a_sentence(&error.to_string());
            }
        }
        Verdict::of(&target)
    });
}

/// What the functions and the notifications of the database carry: numbers, names and texts.
#[test]
fn postgres_answers() {
    let make = |make: &mut Maker| {
        let numbers: Vec<i64> = (0..make.below(13))
            .map(|_| match make.below(3) {
                0 => make.number().cast_signed(),
                _ => i64::try_from(make.below(5)).unwrap_or(0) - 1,
            })
            .collect();
        let names: Vec<String> = (0..make.below(4)).map(|_| make.text(&["job", "naïve job"])).collect();
        (numbers, names, make.text(&["100000 night ly", "0 job", "2 1763228625123500 aGVsbG8=", "0 1 "]))
    };
    fuzz("postgres_answers", make, |(numbers, names, payload)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let count = numbers.len() / 4;
        let is_sound = |trouble: &Trouble| is_a_sentence(&format!("{trouble:?}"));
        let spent = Duration::from_micros(numbers.first().map_or(0, |number| number.unsigned_abs()));
        let claimed = calls::each(numbers, count, |four| calls::claimed(four, spent));
        let released = calls::each(numbers, count, |four| calls::released(four, spent));
        let (notices, holdings) = (calls::notices(numbers, &names), calls::holdings(numbers, &names));
        for trouble in
            [claimed.as_ref().err(), released.as_ref().err(), notices.as_ref().err(), holdings.as_ref().err()]
        {
            trouble.into_iter().for_each(is_sound);
        }
        assert!(claimed.as_ref().is_ok_and(|all| all.len() == count) || claimed.is_err());
        assert!(
            calls::each(numbers, count + 1, |four| calls::claimed(four, spent)).is_err(),
            "an answer is missing"
        );

        let hint = ears::hint(LeaseId(1), payload);
        if let Some(hint) = &hint {
            let written = format!("{} {}", hint.after.as_micros(), hint.resource);
            assert_eq!(ears::hint(LeaseId(1), &written).as_ref(), Some(hint));
        }
        let job = ResourceName::new("job").expect("a name");
        let message = ears::message(&job, payload);
        let is_understood = (claimed.is_ok() && count > 0) || hint.is_some() || message.is_some();
        if is_understood { Verdict::Accepted } else { Verdict::Refused }
    });
}
