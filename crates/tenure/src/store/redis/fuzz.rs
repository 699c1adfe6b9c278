//! URLs by the million, with secrets in them: none makes a panic, and no secret is told.

use testkit::fuzz::{Maker, Verdict, fuzz, is_a_sentence, keeps_secrets, url_with_a_secret};

use super::url::Url;

#[test]
fn redis_urls() {
    let make = |make: &mut Maker| {
        let like = [
            "redis://cache:6379",
            "redis://user:SwordfiSh@[::1]:7000/3",
            "rediss://:SwordfiSh@cache/0",
            "rediss://cache?ca=/nowhere/ca.pem",
            "redis+unix:///run/redis.sock?db=3&user=me&pass=SwordfiSh",
            "unix:/run/redis.sock?pass=SwordfiSh",
        ];
        // A fifth of them only, because they read what browsers trust.
        let schemes = ["redis", "redis", "redis", "redis", "rediss"];
        if make.is_one_of(2) { make.text(&like) } else { url_with_a_secret(make, &schemes) }
    };
    fuzz("redis_urls", make, |url| {
        let parsed = Url::parse(url);
        match &parsed {
            Ok(parsed) => keeps_secrets(&format!("{parsed} {parsed:?}"), url),
            Err(error) => {
                keeps_secrets(&format!("{error:?}"), url);
                is_a_sentence(&error.to_string());
            }
        }
        Verdict::of(&parsed)
    });
}
