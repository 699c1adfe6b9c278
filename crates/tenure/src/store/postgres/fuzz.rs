//! URLs by the million, with secrets in them: none makes a panic, and no secret is told.

use testkit::fuzz::{Maker, Verdict, fuzz, is_a_sentence, keeps_secrets, url_with_a_secret};

use super::url::Target;

#[test]
fn postgres_urls() {
    let make = |make: &mut Maker| {
        let like = [
            "postgres://me:SwordfiSh@db:5432/jobs",
            "postgres://me@a,b:5433/jobs?sslmode=disable&connect_timeout=3",
            "postgres://me:SwordfiSh@db/jobs?listen=postgres%3A%2F%2Fme:hunter22@c%2Fjobs",
            "postgres://me:SwordfiSh@db/jobs?listen=direct:5433&prepared_statements=on",
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
