//! URLs of stores, by the million: told apart by their schemes, and the path of a file taken as it is.

use testkit::fuzz::{Maker, Verdict, fuzz, is_a_sentence, keeps_secrets, url_with_a_secret};

use super::Place;

#[test]
fn store_urls() {
    let make = |make: &mut Maker| {
        if make.is_one_of(4) {
            return url_with_a_secret(make, &["redis", "rediss", "postgres", "mysql"]);
        }
        make.text(&[
            "memory:",
            "memory:one_Two-3",
            "sqlite:/var/lib/app/tenure.db",
            "sqlite:tenure.db?proof=off",
            "sqlite:a b/ä.db?proof=on",
            "redis://me:SwordfiSh@cache:6379/0",
            "postgres://me:SwordfiSh@db/x?password=hunter22",
            "mysql://me:SwordfiSh@db/x",
        ])
    };
    fuzz("store_urls", make, |url| {
        let place = Place::of(url);
        match &place {
            Ok(Place::Sqlite { path, proved }) => {
                let path = path.to_str().expect("it came from text");
                let again = format!("sqlite:{path}?proof={}", if *proved { "on" } else { "off" });
                let Ok(Place::Sqlite { path: same, proved: as_before }) = Place::of(&again) else {
                    panic!("{again:?} is not understood")
                };
                assert_eq!((same.to_str(), as_before), (Some(path), *proved));
                assert!(
                    url == &format!("sqlite:{path}") || url.starts_with(&format!("sqlite:{path}?proof=o"))
                );
            }
            Ok(Place::Memory) => assert!(url.starts_with("memory:") && url.is_ascii()),
            #[cfg(any(feature = "postgres", feature = "redis"))]
            Ok(_) => assert!(["redis", "unix:", "postgres"].iter().any(|scheme| url.starts_with(scheme))),
            Err(error) => {
                keeps_secrets(&format!("{error:?}"), url);
                is_a_sentence(&error.to_string());
            }
        }
        Verdict::of(&place)
    });
}
